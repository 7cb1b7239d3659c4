"""One run with its workers, made from the run's events: the only place that interprets events.

`apply` processes one event. Everything that shows a run applies events and shows a `snapshot`, or
reads one from the run's files (`history.RunHistory`).

Texts are as recorded, without secrets but otherwise unchanged. Tasks, messages, names of files and
of checks may be hostile: whoever shows them escapes them.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from orchestrator.base.events import (
    MOMENTARY,
    Event,
    Notice,
    ProviderPaused,
    RunDone,
    RunStarted,
    WorkerDone,
    WorkerProgress,
)
from orchestrator.base.results import RunResult, Status, WorkerResult, ended_word
from orchestrator.base.text.quantities import slots_in_use
from orchestrator.state.record.states import Phase, PhaseKind, RunState, WorkerState
from orchestrator.state.record.worker_view import WorkerView

MOST_EVENTS = 2000
"""Maximum number of a run's latest events that are kept in memory."""
MOST_NOTICES = 100
"""Maximum number of notices that are shown; of more notices, the first 50 and the last 50."""
_NO_RESULTS: Mapping[int, WorkerResult | None] = {}
_NOT_KEPT = (WorkerProgress, *MOMENTARY)


class Pause(NamedTuple):
    """A period in which a model provider refused requests, so that none of its workers began."""

    provider: str
    start: datetime
    end: datetime


@dataclass(kw_only=True)
class RunView:
    """A run as of the latest event that was applied."""

    run_id: str = ""
    base: str = ""
    """The commit that the run started from."""
    engine: str = ""
    top: Path = Path()
    """Top directory of the checkout from which the run was started."""
    directory: Path = Path()
    """The run's state directory."""
    name: str | None = None
    """Name of the workflow; None for a run of `orchestrator parallel`, and without the plan."""
    by_number: dict[int, WorkerView] = field(default_factory=dict)
    """The workers by their numbers."""
    state: RunState = RunState.RUNNING
    result: RunResult | None = None
    """The run's result; None while the run is live, and if its process died."""
    slots: int | None = None
    """Maximum number of workers at the same time; None before the run has started."""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    last: datetime | None = None
    """Time of the latest event; None without events."""
    until: datetime = field(default_factory=lambda: datetime.now(UTC))
    """End of the recorded time: the current time while the run is live, else the last event."""
    paused: tuple[ProviderPaused, ...] = ()
    notices: tuple[str, ...] = ()
    """Messages of the run for the user, at most `MOST_NOTICES`."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    """The latest events of the run, oldest first, without progress and output."""
    critical_path: tuple[str, ...] = ()
    """Keys of the workers that determined the duration of the run, in order."""
    version: str = ""
    """Text that changes whenever an event or a result is recorded; empty if it is not needed."""

    @property
    def workers(self) -> tuple[WorkerView, ...]:
        """The workers in the order of the plan."""
        return tuple(self.by_number.values())

    @property
    def is_live(self) -> bool:
        """Whether the run's process lives."""
        return self.state is RunState.RUNNING

    @property
    def status(self) -> Status | None:
        """Status of the run; None before its end, and for a run whose process died."""
        return self.result.status if self.result else None

    @property
    def ended_at(self) -> datetime | None:
        """End of the run; None if the run is live or died."""
        return self.until if self.result else None

    @property
    def duration(self) -> float:
        """Seconds from the start until the end of the recorded time."""
        if self.result is not None:
            return self.result.duration
        return (self.until - self.started_at).total_seconds()

    @property
    def word(self) -> str:
        """Name of the run's state, for people: its status or `cancelled`, else its state."""
        results = [worker.result for worker in self.workers if worker.result]
        return ended_word(self.status, results) if self.status else self.state.value

    @property
    def cost(self) -> float:
        """Total cost in USD of all workers whose cost is known."""
        return sum(worker.cost or 0 for worker in self.workers)

    @property
    def known_cost(self) -> float | None:
        """Total cost in USD of all workers whose cost is known; None if no cost is known."""
        return self.cost if any(worker.cost is not None for worker in self.workers) else None

    @property
    def cost_known(self) -> bool:
        """Whether the cost of every worker is known."""
        return all(worker.cost is not None for worker in self.workers)

    @property
    def tokens(self) -> int | None:
        """Total number of tokens of all workers that report tokens; None if no worker does."""
        known = [w.result.tokens for w in self.workers if w.result and w.result.tokens is not None]
        return sum(known) if known else None

    @property
    def passed(self) -> int:
        """Number of workers that succeeded."""
        return sum(worker.status is Status.SUCCESS for worker in self.workers)

    @property
    def is_full(self) -> bool:
        """Whether as many workers are under way as may run at the same time."""
        under_way = sum(worker.is_under_way for worker in self.workers)
        return self.slots is not None and under_way >= self.slots

    @property
    def length(self) -> float:
        """Seconds from the start to the end of the last phase, for a timeline; more than 0."""
        ends = [worker.phases[-1].end for worker in self.workers if worker.phases]
        return max((max([self.until, *ends]) - self.started_at).total_seconds(), 0.001)

    @property
    def pauses(self) -> Iterator[Pause]:
        """The periods in which a model provider refused requests."""
        for event in self.paused:
            end = min(event.at + timedelta(seconds=event.seconds), self.until)
            yield Pause(event.provider, event.at, max(end, event.at))

    def reasons_to_wait(self) -> dict[int, str]:
        """Return why each worker that waits does not start yet, as far as it is known."""
        usual = slots_in_use(self.slots or 0) if self.is_full else ""
        found = {
            number: worker.waits or (usual if worker.state is WorkerState.QUEUED else "")
            for number, worker in self.by_number.items()
            if worker.result is None and self.is_live
        }
        return {number: why for number, why in found.items() if why}

    def apply(self, event: Event) -> None:
        """Apply one event of the run."""
        if not isinstance(event, _NOT_KEPT):
            self.events.append(event)
        if not isinstance(event, Notice):
            # The web view adds notices to runs that have ended.
            self.last = event.at
        match event:
            case RunStarted():
                self._begin(event)
            case RunDone(result=result):
                self.result = result
            case Notice(message=message):
                half = MOST_NOTICES // 2
                if len(self.notices) == MOST_NOTICES:
                    self.notices = (*self.notices[:half], *self.notices[half + 1 :])
                self.notices = (*self.notices, message)
            case ProviderPaused():
                self.paused = (*self.paused, event)
            case _:
                about = event.result if isinstance(event, WorkerDone) else event
                worker = self.by_number.get(getattr(about, "worker_id", 0))
                if worker is not None:
                    worker.apply(event)

    def _begin(self, event: RunStarted) -> None:
        """Start the run, or continue it in another process."""
        is_first = self.slots is None
        # What the run's files say about themselves prevails: their directory may be a copy.
        self.run_id, self.base = self.run_id or event.run_id, self.base or event.base
        self.slots, self.result = event.slots, None
        for position, spec in enumerate(event.workers, start=1):
            worker = self.by_number.get(spec.worker_id)
            if worker is None:
                worker = WorkerView(spec=spec, position=position)
                self.by_number[spec.worker_id] = worker
            if is_first:
                queue = Phase(PhaseKind.QUEUE, event.at, event.at, is_open=True)
                worker.phases, self.started_at = (queue,), event.at
            else:
                worker.begin_again(event.at)

    def snapshot(
        self,
        now: datetime,
        *,
        state: RunState = RunState.RUNNING,
        result: RunResult | None = None,
        results: Mapping[int, WorkerResult | None] = _NO_RESULTS,
    ) -> "RunView":
        """Return a copy for display, which further events do not change.

        Args:
            now: The current time, at which the recorded time of a live run ends.
            state: The state of the run.
            result: The result of a run that ended.
            results: Results of workers that no event contains.
        """
        view = copy(self)
        view.state, view.result, view.events = state, result, self.events.copy()
        last = self.last or self.started_at
        is_live = state is RunState.RUNNING
        view.until = max(now, last) if is_live else last
        view.by_number = {
            number: worker.snapshot(view.until, is_live=is_live, result=results.get(number))
            for number, worker in self.by_number.items()
        }
        return view
