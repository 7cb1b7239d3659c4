"""The model of a run from which all reports and views of the run are made.

`reader.read_run` creates it from the run's files alone. It describes a run that is live, that has
ended or whose process died, and runs of older versions. The model is frozen: to follow a live run,
read the run again.

Texts in the model are as recorded, without secrets but otherwise unchanged. Tasks, messages, names
of files and of checks may be hostile: each format escapes them.
"""

from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.judging.judgement import Judgement
from orchestrator.landing.merged import Merged
from orchestrator.reports.phase import Phase, PhaseKind
from orchestrator.results import CheckResult, Noticed, Reason, Status, WorkerResult
from orchestrator.state.history import RunState, WorkerState


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pause(_Frozen):
    """A period in which a model provider refused requests, so that none of its workers began."""

    provider: str
    start: datetime
    end: datetime


class WorkerReport(_Frozen):
    """What a report says about one worker of a run."""

    worker_id: int
    key: str
    """Id of the worker's task in a workflow, or `worker-K` for the K-th worker of the run. Unique
    in the run, and the same when the run is repeated: for programs that compare runs.
    """
    name: str | None
    """Id of the worker's task in a workflow; None without a workflow."""
    task: str
    agent: str | None = None
    """The agent program; None in records of older versions that cannot be read."""
    model: str
    branch: str
    required: bool
    """Whether the run fails if this worker fails."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that must end before the worker's task starts."""
    state: WorkerState
    result: WorkerResult | None = None
    """The worker's result; None before its end."""
    attempts: tuple[WorkerResult, ...] = ()
    """Results of the failed attempts before the last attempt, first attempt first."""
    alerts: tuple[Noticed, ...] = ()
    """Alerts for which the user should look at the worker, latest last."""
    phases: tuple[Phase, ...] = ()
    started_at: datetime | None = None
    """Start of the worker's latest container."""
    container: str | None = None
    """The engine's id of the worker's current container; None without a container."""
    steps: int = 0
    cost: float = 0.0
    cost_known: bool = False
    is_critical: bool = False
    """Whether the worker is on the critical path, which determines the run's duration."""
    directory: Path
    """Directory with the worker's logs and state."""
    has_died: bool = Field(default=False, exclude=True)
    """Whether the run's process died before the worker had a result."""

    @property
    def title(self) -> str:
        """Name for people, as in other messages: id of the worker's task, else `worker 3`."""
        return self.name or f"worker {self.worker_id}"

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
    def is_waiting_for_answer(self) -> bool:
        """Whether the worker runs, and its latest alert is a question to the user."""
        latest = self.alerts[-1].trigger if self.alerts else None
        runs = self.state is WorkerState.RUNNING and not self.has_died
        return runs and latest == "needs_input"

    @property
    def seconds(self) -> float:
        """Seconds that the agent of the last attempt ran, until now if it still runs."""
        if self.result is not None:
            return self.result.duration
        agents = [phase for phase in self.phases if phase.kind is PhaseKind.AGENT]
        return agents[-1].seconds if agents else 0.0


class RunReport(_Frozen):
    """One run with all its workers."""

    run_id: str
    name: str | None
    """Name of the workflow; None for a run of `orchestrator parallel`."""
    state: RunState
    status: Status | None
    """Status of the run; None before its end, and for a run whose process died."""
    base: str
    """The commit that the run started from."""
    engine: str
    top: Path
    """Top directory of the checkout from which the run was started."""
    directory: Path
    """The run's state directory."""
    slots: int
    """Maximum number of workers at the same time."""
    started_at: datetime
    ended_at: datetime | None
    """End of the run; None if the run is live or died."""
    until: datetime
    """End of the recorded time: the run's end, the last record of a run that died, or now."""
    duration: float
    """Seconds from the start until the end of the recorded time."""
    workers: tuple[WorkerReport, ...]
    pauses: tuple[Pause, ...] = ()
    notices: tuple[str, ...] = ()
    """Messages of the run for the user, at most 100."""
    critical_path: tuple[str, ...] = ()
    """Keys of the workers that determined the duration of the run, in order."""
    judgement: Judgement | None = None
    """The run's latest judgement; None if its workers were not judged."""
    merged: Merged | None = None
    """The merge of the run's branches; only in a report of the command that merged them."""
    junit: tuple[str, ...] = Field(default=(), exclude=True)
    """Artifacts of workers that are JUnit files, whose tests belong to the JUnit report."""

    @property
    def cost(self) -> float:
        """Total cost in USD of all workers whose cost is known."""
        return sum(worker.cost for worker in self.workers)

    @property
    def cost_known(self) -> bool:
        """Whether the cost of every worker is known."""
        return all(worker.cost_known for worker in self.workers)

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
    def bad(self) -> tuple[WorkerReport, ...]:
        """Workers that ended without success; failures caused by another worker come last."""
        found = [worker for worker in self.workers if worker.status in _SEVERITY]
        return tuple(sorted(found, key=_severity))

    @property
    def unfinished(self) -> tuple[WorkerReport, ...]:
        """Workers without a result."""
        return tuple(worker for worker in self.workers if worker.result is None)


_SEVERITY = {Status.FAILED: 0, Status.TIMEOUT: 1, Status.PARTIAL: 2}
ERRORS = frozenset({
    Reason.ENGINE_ERROR, Reason.SETUP_FAILED, Reason.SERVICE_DIED, Reason.INTERNAL_ERROR,
})  # fmt: skip
"""Reasons that are errors of the machine or its settings, and not failures of the task."""
_CONSEQUENCES = frozenset({Reason.DEPENDENCY, Reason.CANCELLED})
"""Reasons of workers that failed only because of another worker."""


def _severity(worker: WorkerReport) -> tuple[bool, bool, int, int]:
    severity = 0 if worker.status is None else _SEVERITY.get(worker.status, 0)
    return worker.reason in _CONSEQUENCES, not worker.required, severity, worker.worker_id
