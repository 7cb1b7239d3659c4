"""The live table on a terminal.

An event costs a few assignments; drawing happens four times a second, whatever the workers print.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.cli.formats import duration, money
from orchestrator.cli.lines import notice_line, port_lines
from orchestrator.events import (
    Event,
    Notice,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerOutput,
    WorkerPreparing,
    WorkerProgress,
    WorkerStarted,
    WorkerStopping,
)
from orchestrator.plan import WorkerSpec
from orchestrator.results import WorkerResult
from orchestrator.sanitize import one_line

REFRESH = 4
MAX_FINISHED = 10
"""Finished workers that stay in sight."""
_STYLES = {"success": "green", "failed": "red", "timeout": "red", "partial": "yellow"}


@dataclass
class _Row:
    spec: WorkerSpec
    state: str = "waiting"
    since: float | None = None
    took: float | None = None
    cost: str = ""
    line: str = ""


class _Unbreakable:
    """A stream whose terminal may go away: the run goes on."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


class BoardView:
    """Shows every worker in a table that is redrawn in place."""

    def __init__(self, stream: IO[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Never held while rich is called: its own lock is held while it calls `render`.
        self._lock = threading.Lock()
        self._rows: dict[int, _Row] = {}
        self._console = Console(file=cast("IO[str]", _Unbreakable(stream)), highlight=False)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        with self._lock:
            self._note(event)
        if isinstance(event, Notice):
            self._console.print(Text(notice_line(event.message)))
        if isinstance(event, WorkerStarted):
            for line in port_lines(event):
                self._console.print(Text(line))

    def _note(self, event: Event) -> None:
        match event:
            case RunStarted(workers=workers):
                self._rows = {spec.worker_id: _Row(spec) for spec in workers}
            case WorkerOutput():
                self._change(event.worker_id, line=event.line)
            case WorkerProgress(cost=float(cost)):
                self._change(event.worker_id, cost=money(cost))
            case WorkerPreparing():
                self._change(event.worker_id, state="preparing")
            case WorkerStarted():
                self._change(event.worker_id, state="running", since=self._clock())
            case WorkerStopping():
                self._change(event.worker_id, state="stopping", line=event.reason)
            case WorkerHarvesting():
                self._change(event.worker_id, state="harvesting")
            case WorkerDone(result=result):
                self._finish(result)
            case _:
                return

    def _change(self, number: int, **changes: str | float) -> None:
        row = self._rows.get(number)
        if row is not None:
            for name, value in changes.items():
                setattr(row, name, value)

    def _finish(self, result: WorkerResult) -> None:
        self._change(
            result.worker_id,
            state=result.status.value,
            took=result.duration,
            cost=money(result.cost, known=result.cost_known),
            line=result.message or "",
        )

    def render(self) -> RenderableType:
        """Draw the table; called by rich from its own thread."""
        with self._lock:
            rows = list(self._rows.values())
            shown = self._in_sight(rows)
            cells = [(row.state, self._cells(row)) for row in shown]
        if not rows:
            return Text("preparing the run")
        table = _empty_table()
        for state, (number, task, model, elapsed, cost, line) in cells:
            styled = Text(state, style=_STYLES.get(state, ""))
            table.add_row(number, task, model, styled, elapsed, cost, line)
        return Group(table, Text(_rest(rows)))

    def _in_sight(self, rows: list[_Row]) -> list[_Row]:
        finished = [row for row in rows if row.took is not None]
        hidden = {id(row) for row in finished[:-MAX_FINISHED]}
        return [row for row in rows if row.state != "waiting" and id(row) not in hidden]

    def _cells(self, row: _Row) -> tuple[Text, ...]:
        seconds = row.took
        if seconds is None:
            seconds = None if row.since is None else self._clock() - row.since
        elapsed = "" if seconds is None else duration(seconds)
        texts = (str(row.spec.worker_id), row.spec.task, row.spec.model_name, elapsed, row.cost)
        return tuple(Text(one_line(text)) for text in (*texts, row.line))


def _empty_table() -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in ("WORKER", "TASK", "MODEL", "STATE", "ELAPSED", "COST"):
        table.add_column(heading, no_wrap=True, max_width=22)
    table.add_column("LAST LINE", no_wrap=True, ratio=1)
    return table


def _rest(rows: list[_Row]) -> str:
    waiting = sum(row.state == "waiting" for row in rows)
    finished = sum(row.took is not None for row in rows)
    return f"{finished} of {len(rows)} done" + (f", {waiting} waiting" if waiting else "")
