"""One worker of a run, made from the run's events and the worker's result.

Everything that shows a worker is a function of this model: lists, tables, pages and reports.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from orchestrator.base.events import (
    Event,
    Intervention,
    TurnStarted,
    WorkerConnected,
    WorkerDone,
    WorkerHarvesting,
    WorkerMeasured,
    WorkerOutput,
    WorkerPreparing,
    WorkerProgress,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.base.results import CheckResult, Noticed, Reason, Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.state.record.states import (
    NEEDS_ATTENTION,
    STATE_IN,
    Phase,
    PhaseKind,
    RunState,
    WorkerState,
)

MOST_ALERTS = 20
"""Maximum number of alerts of one worker that are kept; older alerts are left out."""
_AFTER_STAGE: Mapping[str, PhaseKind] = {
    "setup": PhaseKind.START,
    "teardown": PhaseKind.STOP,
    "check": PhaseKind.HARVEST,
}
"""For each stage, the phase of a worker that follows it."""
TALKING = frozenset({WorkerState.RUNNING, WorkerState.STOPPING})
"""States in which the agent's container runs: it prints, is measured, and may need attention."""
_NOT_UNDER_WAY = frozenset({WorkerState.QUEUED, WorkerState.RETRYING, WorkerState.DONE})


@dataclass(kw_only=True)
class WorkerView:
    """A worker as of the latest event that was applied."""

    spec: WorkerSpec
    position: int = 1
    """Position among the workers of the run, counted from 1."""
    directory: Path = Path()
    """Directory with the worker's logs and state."""
    is_live: bool = True
    """Whether the run's process lives."""
    phases: tuple[Phase, ...] = ()
    """What the worker did and waited for, in order."""
    attempt: int = 1
    """Number of the present attempt, counted from 1."""
    waits: str | None = None
    """Why the worker does not start yet, as far as the run has recorded it."""
    began_at: datetime | None = None
    """Time when the worker's turn came in the present process of the run."""
    started_at: datetime | None = None
    """Start of the agent's container in the present attempt."""
    container: str | None = None
    """The engine's id of the worker's present container; None if it has no container."""
    steps: int | None = None
    cost: float | None = None
    """Cost so far in USD; None if unknown."""
    alerts: tuple[Noticed, ...] = ()
    """Alerts for which the user should look at the worker, latest last."""
    line: str = ""
    """The latest line of output, or why the worker waits, stops or is repeated."""
    usage: WorkerMeasured | None = None
    connections: WorkerConnected | None = None
    """The latest connection, with the numbers of all connections so far."""
    result: WorkerResult | None = None
    """The worker's result; None before its end."""
    agent: str | None = None
    """The agent program; None if the plan of the run was not read."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that must end before the worker's task starts, from the plan of the run."""
    attempts: tuple[WorkerResult, ...] = ()
    """Results of the failed attempts before the last attempt, first attempt first."""
    is_critical: bool = False
    """Whether the worker is on the critical path, which determines the run's duration."""

    @property
    def worker_id(self) -> int:
        """The worker's number."""
        return self.spec.worker_id

    @property
    def name(self) -> str | None:
        """Id of the worker's task in a workflow; None without a workflow."""
        return self.spec.name

    @property
    def key(self) -> str:
        """Id of the worker's task in a workflow, or `worker-K` for the K-th worker of the run.

        Unique in the run, and the same when the run is repeated: for programs that compare runs.
        """
        return self.spec.name or f"worker-{self.position}"

    @property
    def title(self) -> str:
        """Name for people, as in other messages: id of the worker's task, else `worker 3`."""
        return self.spec.name or f"worker {self.spec.worker_id}"

    @property
    def state(self) -> WorkerState:
        """What the worker does, or did last if the run's process died."""
        if self.result is not None:
            return WorkerState.DONE
        return STATE_IN[self.phases[-1].kind] if self.is_in_phase else WorkerState.QUEUED

    @property
    def is_in_phase(self) -> bool:
        """Whether the end of the latest phase is not recorded."""
        return bool(self.phases) and self.phases[-1].is_open

    @property
    def word(self) -> str:
        """Name of the present or final state, for people.

        A worker without a result, whose run's process died, is `died`.
        """
        if self.result is not None:
            return self.result.word
        if not self.is_live:
            return RunState.DIED.value
        return NEEDS_ATTENTION if self.attention else self.state.value

    @property
    def ending(self) -> str:
        """The state with its reason: `failed (oom)`, `needs attention (silence)`, `running`."""
        if self.result is not None:
            return self.result.ending
        return f"{self.word} ({self.attention.trigger})" if self.attention else self.word

    @property
    def outcome(self) -> str:
        """The state, its reason and the attempts of a worker that ended: `failed, attempt 2`."""
        return self.result.outcome if self.result else self.ending

    @property
    def sentence(self) -> str:
        """What a message says of the worker, after its number."""
        if self.result is not None:
            return f"{WorkerState.DONE.sentence}: {self.result.outcome}"
        if self.is_live:
            return self.state.sentence
        return f"had no result when its run died (last: {self.state})"

    @property
    def attention(self) -> Noticed | None:
        """The alert for which a person should look at the worker now; None if there is none."""
        if not (self.alerts and self.is_live and self.state in TALKING):
            return None
        latest = self.alerts[-1]
        is_earlier = self.started_at is not None and latest.at < self.started_at
        return None if is_earlier else latest

    @property
    def is_under_way(self) -> bool:
        """Whether the worker uses one of the run's slots."""
        return self.state not in _NOT_UNDER_WAY

    @property
    def status(self) -> Status | None:
        """Final status; None before the worker's end."""
        return self.result.status if self.result else None

    @property
    def reason(self) -> Reason | None:
        """Reason why the worker did not succeed; None if it succeeded or has not ended."""
        return self.result.reason if self.result else None

    @property
    def message(self) -> str:
        """Explanation of the result in one line; empty if there is none."""
        return (self.result.message if self.result else None) or ""

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """Results of the checks of the worker's commit."""
        return tuple(self.result.checks) if self.result else ()

    @property
    def seconds(self) -> float:
        """Seconds that the agent's container of the present attempt ran; 0 if it never started."""
        if self.result is not None:
            return self.result.duration
        if self.started_at is None:
            return 0.0
        kinds, since = (PhaseKind.AGENT, PhaseKind.STOP), self.started_at
        return sum(p.seconds for p in self.phases if p.kind in kinds and p.start >= since)

    def snapshot(
        self, until: datetime, *, is_live: bool = True, result: WorkerResult | None = None
    ) -> "WorkerView":
        """Return a copy for display, which further events do not change.

        Args:
            until: End of the recorded time, at which the last phase ends in the copy.
            is_live: Whether the run's process lives.
            result: A result that no event contains.
        """
        view = copy(self)
        view.is_live = is_live
        if view.is_in_phase:
            view.phases = (*view.phases[:-1], view.phases[-1].until(until, is_open=True))
        if result is not None:
            view.finish(result)
        return view

    def begin_again(self, at: datetime) -> None:
        """Forget the result: a resumed run repeats the results that it keeps."""
        self.began_at = self.began_at if self.result else None
        if self.result is None and self.is_in_phase:
            self._enter(PhaseKind.QUEUE, at)
        self.result = self.started_at = None

    def apply(self, event: Event) -> None:
        """Apply an event about this worker."""
        self.waits = event.reason if isinstance(event, WorkerWaiting) else None
        match event:
            case WorkerOutput(line=line) | WorkerWaiting(reason=line):
                self.line = line
            case WorkerProgress(steps=steps, cost=cost):
                self.steps, self.cost = steps or self.steps, cost or self.cost
            case WorkerMeasured():
                self.usage = event
            case WorkerConnected():
                self.connections = event
            case Intervention(trigger=trigger, detail=detail, at=at):
                alert = Noticed(trigger=trigger, detail=detail, at=at)
                self.alerts = (*self.alerts, alert)[-MOST_ALERTS:]
            case TurnStarted(attempt=attempt, at=at):
                self.attempt = attempt
                self._enter(PhaseKind.QUEUE, at)
                self.result, self.started_at, self.line = None, None, f"turn {event.turn}"
            case _:
                self._apply_step(event)

    def _apply_step(self, event: Event) -> None:
        """Apply an event at which a phase of the worker begins or ends."""
        match event:
            case WorkerPreparing(at=at):
                self._turn_comes(at)
                self._enter(PhaseKind.PREPARE, at)
                self.result, self.started_at, self.line = None, None, ""
            case WorkerStage(stage=stage, name=name, container=container, at=at):
                self._enter(PhaseKind(stage), at, container=container, name=name)
            case WorkerStageDone(stage=stage, problem=problem, at=at):
                if self.is_in_phase and self.phases[-1].kind == stage:
                    ended = self.phases[-1]._replace(problem=problem)
                    self.phases = (*self.phases[:-1], ended)
                self._enter(_AFTER_STAGE[stage], at)
            case WorkerStarted(container=container, at=at):
                self._turn_comes(at)
                self._enter(PhaseKind.AGENT, at, container=container)
                self.result, self.started_at, self.line = None, at, ""
            case WorkerStopping(reason=reason, at=at):
                self._enter(PhaseKind.STOP, at, container=self.container)
                self.line = reason
            case WorkerHarvesting(at=at):
                self._enter(PhaseKind.HARVEST, at)
            case WorkerRetrying(attempt=attempt, reason=reason, counted=counted, at=at):
                self.attempt = attempt
                self._enter(PhaseKind.RETRY if counted else PhaseKind.PROVIDER, at)
                self.started_at, self.line = None, f"attempt {attempt - 1} failed: {reason}"
            case WorkerDone(result=result, at=at):
                self._leave(at)
                self.finish(result)
            case _:
                return

    def finish(self, result: WorkerResult) -> None:
        """Record the worker's result."""
        self.result, self.container = result, None
        self.started_at, self.alerts = result.started_at, tuple(result.interventions)
        self.steps = result.steps
        self.cost = result.cost if result.cost_known else None
        self.line = result.message or ""
        if result.started_at is None:
            return
        end = result.started_at + timedelta(seconds=result.duration)
        if not self.phases:
            # The events are missing.
            only = Phase(PhaseKind.AGENT, result.started_at, end, attempt=result.attempts)
            self.phases = (only,)
        agents = [n for n, phase in enumerate(self.phases) if phase.kind is PhaseKind.AGENT]
        if not agents:
            return
        # The time after the end of the agent's container is a phase of its own.
        place = agents[-1]
        agent = self.phases[place]
        if agent.start < end < agent.end:
            halves = agent.until(end), agent._replace(kind=PhaseKind.STOP, start=end)
            self.phases = (*self.phases[:place], *halves, *self.phases[place + 1 :])

    def _turn_comes(self, at: datetime) -> None:
        if self.began_at is None or not self.is_in_phase:
            self.began_at = at

    def _enter(
        self,
        kind: PhaseKind,
        at: datetime,
        *,
        container: str | None = None,
        name: str | None = None,
    ) -> None:
        self._leave(at)
        new = Phase(kind, at, at, is_open=True, attempt=self.attempt, name=name)
        self.phases, self.container = (*self.phases, new), container

    def _leave(self, at: datetime) -> None:
        if self.is_in_phase:
            self.phases = (*self.phases[:-1], self.phases[-1].until(at))
