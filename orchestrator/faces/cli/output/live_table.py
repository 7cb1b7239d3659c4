"""The live table on a terminal.

Processing an event takes only a few assignments; the table is drawn four times per second, from a
snapshot of the run.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import IO, Any, Literal, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.base.events import (
    Event,
    Intervention,
    Notice,
    ProviderPaused,
    SlotsChanged,
    WorkerStarted,
)
from orchestrator.base.text.quantities import duration, money, size
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.output.event_lines import alert_line, notice_line, port_lines
from orchestrator.faces.cli.output.formats import name_of, title_of
from orchestrator.state.record.estimate import estimate
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.states import NEEDS_ATTENTION, WorkerState
from orchestrator.state.record.worker_view import WorkerView

REFRESH = 4
MAX_FINISHED = 10
"""Maximum number of finished workers that are shown."""
_COLUMNS = ("worker", "task", "model", "state", "elapsed", "cost")
_LINE = "last line"
_MEASURES = ("steps", "files", "cpu", "memory", "disk")
"""Columns of the table that appear once there are measurements."""
_NETWORK = "network"
"""Column that appears once a worker has connected to a host through its gateway."""
_WIDE, _NARROW = 22, 12
"""Maximum width of a column in a table without measurements, and in a table with measurements."""
_ROOM = 110
"""Terminal width in columns; in a narrower terminal, workers' last output lines are printed under
the table.
"""
_MOST_REASONS = 4
"""Maximum number of reasons for waiting that are shown under the table."""
_STYLES = {
    "success": "green", "failed": "red", "timeout": "red", "partial": "yellow",
    NEEDS_ATTENTION: "yellow",
}  # fmt: skip


class ForgivingStream:
    """A stream that ignores write errors, so that a run continues if its terminal is closed."""

    def __init__(self, stream: IO[str]) -> None:
        """Wrap a stream."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose the text."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        """Flush the stream, if possible."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


class BoardView:
    """Shows every worker in a table that is redrawn in place."""

    def __init__(
        self, stream: IO[str], *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        # The lock is not held while calling rich, which holds its own lock while it calls `render`.
        self._lock = threading.Lock()
        self._run = RunView()
        self._console = Console(file=cast("IO[str]", ForgivingStream(stream)), highlight=False)
        self._live = Live(
            get_renderable=self.render,
            console=self._console,
            refresh_per_second=REFRESH,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Update the table's data for an event."""
        with self._lock:
            self._run.apply(event)
            worker = self._run.by_number.get(getattr(event, "worker_id", 0))
        name = None if worker is None else worker.name
        if isinstance(event, Notice):
            self._console.print(Text(notice_line(event.message)))
        if isinstance(event, (Intervention, ProviderPaused, SlotsChanged)):
            self._console.print(Text(alert_line(event, name), style="yellow"))
        if isinstance(event, WorkerStarted):
            for line in port_lines(event, name):
                self._console.print(Text(line))

    def run(self) -> RunView:
        """Return the run as of now."""
        with self._lock:
            return self._run.snapshot(self._now())

    def render(self) -> RenderableType:
        """Return the table to draw; the library rich calls this from its own thread."""
        run = self.run()
        if not run.workers:
            return Text("preparing the run")
        measured = any(worker.usage for worker in run.workers)
        connected = any(worker.connections for worker in run.workers)
        measures = (*(_MEASURES if measured else ()), *((_NETWORK,) if connected else ()))
        columns = (*_COLUMNS, *measures, _LINE)
        finished = [worker.worker_id for worker in run.workers if worker.result is not None]
        queued = [w.worker_id for w in run.workers if w.state is WorkerState.QUEUED]
        hidden = {*queued, *finished[:-MAX_FINISHED]}
        rows = [_cells(worker) for worker in run.workers if worker.worker_id not in hidden]
        below = []
        if measured and self._console.width < _ROOM:
            columns = tuple(name for name in columns if name not in ("task", "model", _LINE))
            texts = [f"{row['worker']}: {one_line(row[_LINE])}" for row in rows if row[_LINE]]
            below = [Text(text, no_wrap=True, overflow="ellipsis") for text in texts]
        parts = [f"{len(finished)} of {len(run.workers)} done"]
        parts += [f"{len(queued)} queued"] if queued else []
        rest = ", ".join(filter(None, [*parts, estimate(run)]))
        table = Table(box=None, pad_edge=False, expand=True)
        widest = _NARROW if _MEASURES[0] in columns else _WIDE
        for name in columns:
            justify: Literal["left", "right"] = "right" if name in _MEASURES else "left"
            most = max(widest, len(NEEDS_ATTENTION)) if name == "state" else widest
            room: dict[str, Any] = {"ratio": 1} if name == _LINE else {"max_width": most}
            table.add_column(name.upper(), no_wrap=True, justify=justify, **room)
        for row in rows:
            style = {"state": _STYLES.get(row["state"], "")}
            table.add_row(
                *(Text(one_line(row[name]), style=style.get(name, "")) for name in columns)
            )
        return Group(table, *below, *_reasons(run), Text(rest))


def _cells(worker: WorkerView) -> dict[str, str]:
    result, usage, made = worker.result, worker.usage, worker.connections
    files = usage.files if usage else None
    refused = f", {made.refusals} refused" if made and made.refusals else ""
    cpus = usage.cpus if usage and result is None else None
    memory = usage.memory if usage and result is None else None
    return {
        "worker": title_of(worker.worker_id, worker.name),
        "task": worker.spec.task,
        "model": worker.spec.model_name,
        "state": worker.word,
        "elapsed": duration(worker.seconds) if result or worker.started_at else "",
        "cost": money(worker.cost or 0, known=worker.cost is not None)
        if result or worker.cost is not None
        else "",
        "steps": "" if worker.steps is None else str(worker.steps),
        "files": str(result.file_count) if result else "" if files is None else str(files),
        "cpu": "" if cpus is None else f"{cpus:.0%}",
        "memory": "" if memory is None else size(memory),
        "disk": "" if usage is None or usage.disk is None else size(usage.disk),
        _NETWORK: f"{made.connections}{refused}" if made else "",
        _LINE: worker.line,
    }


def _reasons(run: RunView) -> list[Text]:
    """Return lines on why workers do not start yet: one for each reason, most workers first."""
    waiting: dict[str, list[str]] = {}
    for number, why in run.reasons_to_wait().items():
        worker = run.by_number[number]
        if worker.state is WorkerState.QUEUED:
            waiting.setdefault(why, []).append(name_of(number, worker.name))
    found = sorted(waiting.items(), key=lambda reason: -len(reason[1]))[:_MOST_REASONS]
    lines = []
    for why, names in found:
        more = len(names) - 1
        who = f"{names[0]} and {more} more wait" if more else f"{names[0]} waits"
        text = f"{who}: {one_line(why)}"
        lines.append(Text(text, style="dim", no_wrap=True, overflow="ellipsis"))
    return lines
