"""Follow the record of one run, for all pages that show the run."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from orchestrator.errors import RunDiedError
from orchestrator.events import (
    Event,
    Intervention,
    Notice,
    RunStarted,
    WorkerMeasured,
    WorkerProgress,
)
from orchestrator.reports.phase import Phase, PhaseKind
from orchestrator.reports.phases import phases_of
from orchestrator.results import RunResult, WorkerResult
from orchestrator.state.history import EVENTS, RunHistory, RunState, WorkerState
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RunOutline
from orchestrator.web.live_usage import LiveUsage
from orchestrator.worker_spec import WorkerSpec

LIVE = "1"
"""First character of the text by which pages recognise the current version of a live run."""
MOST_EVENTS = 2000
"""Maximum number of a run's latest events that are kept in memory for its pages."""

_NOT_UNDER_WAY = frozenset({WorkerState.QUEUED, WorkerState.RETRYING, WorkerState.DONE})


@dataclass(frozen=True, kw_only=True)
class WorkerRecord:
    """The records of one worker: its state, phases, cost and result."""

    spec: WorkerSpec
    state: WorkerState
    waits: str | None
    """Why the worker does not start yet, if that was recorded."""
    started_at: datetime | None
    steps: int | None
    cost: float | None
    result: WorkerResult | None
    phases: tuple[Phase, ...]
    alert: Intervention | None
    """The latest alert about the worker; None if there is none, or if the worker has ended."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The records of a run at one moment: its state, workers, events and result."""

    directory: RunDirectory
    outline: RunOutline
    state: RunState
    result: RunResult | None
    """The run's result; None while the run is live, and if its process died."""
    workers: tuple[WorkerRecord, ...]
    events: tuple[Event, ...]
    """The latest events of the run, oldest first."""
    began: datetime
    last: datetime
    """Time of the latest event."""
    until: datetime
    """End of the recorded time: the current time while the run is live, else the last event."""
    slots: int | None
    """Maximum number of workers at the same time."""
    version: str
    """Text that changes whenever an event or a result is recorded."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.directory.run_id

    @property
    def is_live(self) -> bool:
        """Whether the run's process lives."""
        return self.state is RunState.RUNNING

    @cached_property
    def is_full(self) -> bool:
        """Whether as many workers are under way as may run at the same time."""
        under_way = sum(one.state not in _NOT_UNDER_WAY for one in self.workers)
        return self.slots is not None and under_way >= self.slots

    def worker(self, number: int) -> WorkerRecord | None:
        """Return the worker with a number; None if there is none."""
        return next((one for one in self.workers if one.spec.worker_id == number), None)


class RunReader:
    """Reads new entries of the record of one run. Thread-safe."""

    def __init__(self, directory: RunDirectory, outline: RunOutline) -> None:
        self._history = RunHistory(directory, outline)
        self._transitions: list[Event] = []
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._began: datetime | None = None
        self._last: datetime | None = None
        self._slots: int | None = None
        self._alerts: dict[int, Intervention] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the files of the run's record."""
        with self._lock:
            self._history.__exit__(None, None, None)

    def version(self) -> str:
        """Return a text that changes whenever the run's record changes."""
        directory = self._history.directory
        marks = [LIVE if directory.is_live() else "0"]
        for name in (EVENTS, "result.json"):
            try:
                info = (directory.path / name).stat()
                marks.append(f"{info.st_size:x}.{info.st_mtime_ns:x}")
            except OSError:
                marks.append("0")
        return "-".join(marks)

    def measured(self, usage: LiveUsage) -> Mapping[int, WorkerMeasured]:
        """Return the latest measurements of the run's workers."""
        return usage.of(self._history)

    def snapshot(self) -> Snapshot:
        """Read new entries of the record, and return the whole record."""
        with self._lock:
            return self._snapshot()

    def _snapshot(self) -> Snapshot:
        history = self._history
        # The order matters: a run that is not live has written all of its events.
        version, live = self.version(), history.directory.is_live()
        while events := history.read():
            for event in events:
                self._note(event)
        state = RunState.RUNNING if live else history.state()
        began = self._began or history.record.created_at
        last = self._last or began
        until = max(datetime.now(UTC), last) if live else last
        phases = phases_of(self._transitions, until)
        return Snapshot(
            directory=history.directory,
            outline=history.record,
            state=state,
            result=None if live else _result(history),
            workers=tuple(
                self._worker(number, phases.get(number, ()), live=live)
                for number in history.workers
            ),
            events=tuple(self._events),
            began=began,
            last=last,
            until=until,
            slots=self._slots,
            version=version,
        )

    def _note(self, event: Event) -> None:
        if not isinstance(event, Notice):
            # The web view adds notices to runs that have ended.
            self._last = event.at
        if isinstance(event, RunStarted):
            self._began, self._slots = self._began or event.at, event.slots
        if not isinstance(event, WorkerProgress):
            self._events.append(event)
        if not isinstance(event, (WorkerProgress, Notice)):
            self._transitions.append(event)
        if isinstance(event, Intervention):
            self._alerts[event.worker_id] = event

    def _worker(self, number: int, phases: tuple[Phase, ...], *, live: bool) -> WorkerRecord:
        view = self._history.workers[number]
        result = self._history.worker_result(number, live=live)
        return WorkerRecord(
            spec=view.spec,
            state=WorkerState.DONE if result else view.state,
            waits=view.waits,
            started_at=view.started_at,
            steps=view.steps,
            cost=view.cost,
            result=result,
            phases=_with_end(phases, result),
            alert=None if result else self._alerts.get(number),
        )


def _with_end(phases: tuple[Phase, ...], result: WorkerResult | None) -> tuple[Phase, ...]:
    """Return the phases, with the time after the end of the agent's container as another phase."""
    place = max((i for i, one in enumerate(phases) if one.kind is PhaseKind.AGENT), default=None)
    if place is None or result is None or result.started_at is None:
        return phases
    agent, end = phases[place], result.started_at + timedelta(seconds=result.duration)
    if not agent.start < end < agent.end:
        return phases
    halves = (
        agent.model_copy(update={"end": end}),
        agent.model_copy(update={"kind": PhaseKind.STOP, "start": end}),
    )
    return (*phases[:place], *halves, *phases[place + 1 :])


def _result(history: RunHistory) -> RunResult | None:
    try:
        return history.result()
    except RunDiedError:
        return None


def record_notice(directory: RunDirectory, message: str) -> None:
    """Record a message for the user among the events of a run."""
    directory.log_event(Notice(message=message))
