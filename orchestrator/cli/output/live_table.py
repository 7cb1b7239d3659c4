"""The live table on a terminal.

Processing an event takes only a few assignments; the table is redrawn four times per second.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.cli.output.estimate import Estimate
from orchestrator.cli.output.event_lines import alert_line, notice_line, port_lines
from orchestrator.cli.output.formats import amount, called, titled
from orchestrator.events import (
    Event,
    Intervention,
    Notice,
    ProviderPaused,
    RunStarted,
    SlotsChanged,
    WorkerConnected,
    WorkerDone,
    WorkerHarvesting,
    WorkerMeasured,
    WorkerOutput,
    WorkerPreparing,
    WorkerProgress,
    WorkerRetrying,
    WorkerStage,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.results import WorkerResult
from orchestrator.state.history import WorkerState
from orchestrator.text.quantities import duration, money, slots_in_use
from orchestrator.text.sanitize import one_line
from orchestrator.worker_spec import WorkerSpec

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
_NOT_UNDER_WAY = frozenset({WorkerState.QUEUED.value, WorkerState.RETRYING.value})
_MOST_REASONS = 4
"""Maximum number of reasons for waiting that are shown under the table."""
_STYLES = {"success": "green", "failed": "red", "timeout": "red", "partial": "yellow"}


@dataclass
class _Row:
    spec: WorkerSpec
    state: str = WorkerState.QUEUED.value
    since: float | None = None
    took: float | None = None
    cost: str = ""
    steps: str = ""
    files: str = ""
    cpu: str = ""
    memory: str = ""
    disk: str = ""
    network: str = ""
    line: str = ""


class _ForgivingStream:
    """A stream that ignores write errors, so that a run continues if its terminal is closed."""

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
        # The lock is not held while calling rich, which holds its own lock while it calls `render`.
        self._lock = threading.Lock()
        self._rows: dict[int, _Row] = {}
        self._estimate = Estimate()
        self._slots = 0
        self._measured = self._connected = False
        self._console = Console(file=cast("IO[str]", _ForgivingStream(stream)), highlight=False)
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
            self._estimate.note(event)
            self._note(event)
        if isinstance(event, Notice):
            self._console.print(Text(notice_line(event.message)))
        if isinstance(event, (Intervention, ProviderPaused, SlotsChanged)):
            name = self._name(getattr(event, "worker_id", 0))
            self._console.print(Text(alert_line(event, name), style="yellow"))
        if isinstance(event, WorkerStarted):
            for line in port_lines(event, self._name(event.worker_id)):
                self._console.print(Text(line))

    def _name(self, number: int) -> str | None:
        row = self._rows.get(number)
        return None if row is None else row.spec.name

    def _note(self, event: Event) -> None:
        match event:
            case RunStarted(workers=workers, slots=slots):
                self._slots = slots
                self._rows = {spec.worker_id: _Row(spec) for spec in workers}
            case WorkerStarted():
                # The worker may have started earlier, if the event is read from the run's record.
                since = self._clock() - max(time.time() - event.at.timestamp(), 0)
                self._change(event.worker_id, state=WorkerState.RUNNING.value, since=since, line="")
            case WorkerDone(result=result):
                self._finish(result)
            case _:
                self._measured = self._measured or isinstance(event, WorkerMeasured)
                self._connected = self._connected or isinstance(event, WorkerConnected)
                self._change(getattr(event, "worker_id", 0), **_changes(event))

    def _change(self, number: int, **changes: str | float | None) -> None:
        row = self._rows.get(number)
        if row is not None:
            for name, value in changes.items():
                setattr(row, name, value)

    def _finish(self, result: WorkerResult) -> None:
        self._change(
            result.worker_id,
            state=result.word,
            took=result.duration,
            cost=money(result.cost, known=result.cost_known),
            steps=str(result.steps),
            files=str(result.file_count),
            cpu="",
            memory="",
            line=result.message or "",
        )

    def render(self) -> RenderableType:
        """Return the table to draw; the library rich calls this from its own thread."""
        with self._lock:
            rows = list(self._rows.values())
            cells = [self._cells(row) for row in self._in_sight(rows)]
            left, slots = self._estimate.text(), self._slots
        if not rows:
            return Text("preparing the run")
        narrow = self._measured and self._console.width < _ROOM
        below = [_below(row) for row in cells if row[_LINE]] if narrow else []
        table = _table(cells, self._columns(narrow=narrow))
        return Group(table, *below, *_reasons(rows, slots), Text(_rest(rows, left)))

    def _columns(self, *, narrow: bool) -> tuple[str, ...]:
        more = (*(_MEASURES if self._measured else ()), *((_NETWORK,) if self._connected else ()))
        if narrow:
            return tuple(name for name in _COLUMNS + more if name not in ("task", "model"))
        return (*_COLUMNS, *more, _LINE)

    def _in_sight(self, rows: list[_Row]) -> list[_Row]:
        finished = [row for row in rows if row.took is not None]
        hidden = {id(row) for row in finished[:-MAX_FINISHED]}
        return [row for row in rows if row.state != WorkerState.QUEUED and id(row) not in hidden]

    def _cells(self, row: _Row) -> dict[str, str]:
        seconds = row.took
        if seconds is None:
            seconds = None if row.since is None else self._clock() - row.since
        return {
            "worker": titled(row.spec.worker_id, row.spec.name),
            "task": row.spec.task,
            "model": row.spec.model_name,
            "state": row.state,
            "elapsed": "" if seconds is None else duration(seconds),
            "cost": row.cost,
            _LINE: row.line,
            **{name: getattr(row, name) for name in (*_MEASURES, _NETWORK)},
        }


def _changes(event: Event) -> dict[str, str | float | None]:
    match event:
        case WorkerOutput(line=line) | WorkerWaiting(reason=line):
            return {"line": line}
        case WorkerProgress():
            return {**_progress(event)}
        case WorkerMeasured():
            return {**_measures(event)}
        case WorkerConnected():
            refused = f", {event.refusals} refused" if event.refusals else ""
            return {"network": f"{event.connections}{refused}"}
        case WorkerPreparing():
            return {"state": WorkerState.PREPARING.value, "since": None, "took": None, "line": ""}
        case WorkerStage(stage=stage):
            return {"state": stage}
        case WorkerStopping(reason=reason):
            return {"state": WorkerState.STOPPING.value, "line": reason}
        case WorkerHarvesting():
            return {"state": WorkerState.HARVESTING.value}
        case WorkerRetrying(attempt=attempt, reason=reason):
            line = f"attempt {attempt - 1} failed: {reason}"
            return {"state": WorkerState.RETRYING.value, "since": None, "line": line}
        case _:
            return {}


def _progress(event: WorkerProgress) -> dict[str, str]:
    texts = {
        "cost": None if event.cost is None else money(event.cost),
        "steps": None if event.steps is None else str(event.steps),
    }
    return {name: text for name, text in texts.items() if text is not None}


def _measures(event: WorkerMeasured) -> dict[str, str]:
    return {
        "files": "" if event.files is None else str(event.files),
        "cpu": "" if event.cpus is None else f"{event.cpus:.0%}",
        "memory": "" if event.memory is None else amount(event.memory),
        "disk": "" if event.disk is None else amount(event.disk),
    }


def _table(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    widest = _NARROW if _MEASURES[0] in columns else _WIDE
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in _MEASURES else "left"
        room: dict[str, Any] = {"ratio": 1} if name == _LINE else {"max_width": widest}
        table.add_column(name.upper(), no_wrap=True, justify=justify, **room)
    for row in rows:
        style = {"state": _STYLES.get(row["state"], "")}
        table.add_row(*(Text(one_line(row[name]), style=style.get(name, "")) for name in columns))
    return table


def _below(row: Mapping[str, str]) -> Text:
    return Text(f"{row['worker']}: {one_line(row[_LINE])}", no_wrap=True, overflow="ellipsis")


def _reasons(rows: list[_Row], slots: int) -> list[Text]:
    """Return lines on why workers do not start yet: one for each reason, most workers first."""
    waiting: dict[str, list[str]] = {}
    under_way = sum(row.took is None and row.state not in _NOT_UNDER_WAY for row in rows)
    usual = slots_in_use(slots) if under_way >= slots else ""
    for row in rows:
        if row.state == WorkerState.QUEUED and (why := row.line or usual):
            waiting.setdefault(why, []).append(called(row.spec.worker_id, row.spec.name))
    found = sorted(waiting.items(), key=lambda one: -len(one[1]))[:_MOST_REASONS]
    return [
        Text(f"{_some(names)}: {one_line(why)}", style="dim", no_wrap=True, overflow="ellipsis")
        for why, names in found
    ]


def _some(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} waits"
    return f"{names[0]} and {len(names) - 1} more wait"


def _rest(rows: list[_Row], left: str) -> str:
    queued = sum(row.state == WorkerState.QUEUED for row in rows)
    finished = sum(row.took is not None for row in rows)
    parts = [f"{finished} of {len(rows)} done"]
    parts += [f"{queued} queued"] if queued else []
    return ", ".join([*parts, *([left] if left else [])])
