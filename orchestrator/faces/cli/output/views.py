"""Views that show the progress of a run. All write to stderr, `EventView` also to stdout."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import IO, Protocol, Self

from orchestrator.base.events import (
    MOMENTARY,
    UNSENT,
    Event,
    Intervention,
    Notice,
    ProviderPaused,
    RunStarted,
    SlotsChanged,
    TurnStarted,
    WorkerConnected,
    WorkerDone,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.faces.cli.output.ci import in_ci
from orchestrator.faces.cli.output.event_lines import (
    again_line,
    alert_line,
    done_line,
    notice_line,
    port_lines,
    refusal_line,
    run_line,
    stage_line,
    stage_lines,
    start_line,
    stopping_line,
)
from orchestrator.faces.cli.output.formats import title_of
from orchestrator.faces.cli.output.messages import show_json, tell
from orchestrator.state.record.estimate import estimate
from orchestrator.state.record.run_view import RunView

HEARTBEAT = 30.0
"""Seconds between two lines that list the running workers."""
MOST_REFUSALS = 20
"""Maximum number of refused hosts of a worker about which a line is printed."""


class View(Protocol):
    """Receives events from many threads, and shows them until the context is left."""

    def __call__(self, event: Event) -> None:
        """Process one event.

        Raises:
            Nothing: A view that cannot write must not end a run.
        """

    def __enter__(self) -> Self:
        """Start the view."""

    def __exit__(self, *_: object) -> None:
        """End the view, and restore the terminal."""


def make_view(*, quiet: bool, events: bool = False, stream: IO[str] | None = None) -> View:
    """Return the view that suits the stream.

    Args:
        quiet: Whether the view prints nothing.
        events: Whether the view also prints every event as JSON on stdout.
        stream: Where the view is shown. Default: stderr.
    """
    if events:
        return EventView(make_view(quiet=quiet, stream=stream))
    stream = stream or sys.stderr
    if quiet:
        return QuietView()
    if is_redrawn(stream):
        # Imported here because rich is large, and needed only on terminals.
        from orchestrator.faces.cli.output.live_table import BoardView

        return BoardView(stream)
    return PlainView()


def is_redrawn(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal on which a view can redraw itself."""
    # Some CI systems give jobs a terminal, and interpret its output.
    terminal = stream.isatty() and not in_ci(os.environ)
    return terminal and os.environ.get("TERM", "dumb") != "dumb"


class QuietView:
    """Shows nothing but that notifications are not sent."""

    def __call__(self, event: Event) -> None:
        """Show a notice of the event that nothing else tells."""
        if isinstance(event, Notice) and event.message.startswith(UNSENT):
            tell(notice_line(event.message))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class EventView:
    """Prints each recorded event as a JSON line on stdout; passes all events to another view."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Print an event."""
        self._view(event)
        if isinstance(event, MOMENTARY):
            return
        with self._lock:
            show_json(json.dumps(event.model_dump(mode="json")))

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(self, *given: object) -> None:
        self._view.__exit__(*given)


class PlainView:
    """Prints a line for each important event; for logs and CI."""

    def __init__(
        self,
        write: Callable[[str], None] = tell,
        *,
        clock: Callable[[], float] = time.monotonic,
        interval: float = HEARTBEAT,
    ) -> None:
        self._write = write
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()
        self._run = RunView()
        self._refused: set[tuple[int, str, int | None]] = set()
        self._started = clock()
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __call__(self, event: Event) -> None:
        """Print the lines for an event."""
        with self._lock:
            self._run.apply(event)
            if isinstance(event, WorkerConnected):
                number = event.worker_id
                place = number, event.host, event.port
                known = sum(worker == number for worker, _, _ in self._refused)
                if event.refused is None or place in self._refused or known >= MOST_REFUSALS:
                    lines = []
                else:
                    self._refused.add(place)
                    lines = [refusal_line(event, self._name(number))]
            else:
                lines = self._lines(event)
            for line in lines:
                self._write(line)

    def __enter__(self) -> Self:
        self._started = self._clock()
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._heart.join()

    def heartbeat(self) -> None:
        """Print the running workers."""
        with self._lock:
            if running := self._running():
                workers = ", ".join(title_of(number, self._name(number)) for number in running)
                elapsed = self._clock() - self._started
                text = estimate(self._run.snapshot(datetime.now(UTC)))
                left = f", {text}" if text else ""
                self._write(f"still running: {workers} ({elapsed:.0f} s{left})")

    def _beat(self) -> None:
        while not self._ended.wait(self._interval):
            self.heartbeat()

    def _running(self) -> list[int]:
        """Return the numbers of the workers whose agents have started, and that have not ended."""
        workers = self._run.by_number.items()
        return sorted(n for n, worker in workers if worker.started_at and not worker.result)

    def _name(self, number: int) -> str | None:
        worker = self._run.by_number.get(number)
        return None if worker is None else worker.name

    def _lines(self, event: Event) -> list[str]:
        match event:
            case Notice(message=message):
                return [notice_line(message)]
            case RunStarted():
                return [run_line(event)]
            case WorkerStage():
                return [stage_line(event, self._name(event.worker_id))]
            case WorkerStageDone():
                return stage_lines(event, self._name(event.worker_id))
            case WorkerStarted(worker_id=number):
                worker = self._run.by_number.get(number)
                spec = worker.spec if worker else None
                started = start_line(number, spec, running=len(self._running()))
                return [started, *port_lines(event, self._name(number))]
            case (
                Intervention() | ProviderPaused() | SlotsChanged() | WorkerWaiting(cause="machine")
            ):
                return [alert_line(event, self._name(getattr(event, "worker_id", 0)))]
            case WorkerStopping():
                return [stopping_line(event, self._name(event.worker_id))]
            case WorkerRetrying() | TurnStarted():
                return [again_line(event, self._name(event.worker_id))]
            case WorkerDone(result=result):
                return [done_line(result)]
            case _:
                return []
