"""Events of a run, passed to a callback as they happen."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.results import RunResult, Trigger, WorkerResult
from orchestrator.worker_spec import WorkerSpec

Stream = Literal["stdout", "stderr"]


Stage = Literal["setup", "teardown", "check"]
"""Steps that run before or after the agent, in their own containers."""


def _now() -> datetime:
    return datetime.now(UTC)


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime = Field(default_factory=_now)


class Notice(_Event):
    """A message for people, in one line."""

    type: Literal["notice"] = "notice"
    message: str


class RunStarted(_Event):
    """The plan is complete; nothing runs yet."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    base: str
    workers: tuple[WorkerSpec, ...]
    slots: int


class WorkerPreparing(_Event):
    """The worker has a slot; its worktree is being created."""

    type: Literal["worker_preparing"] = "worker_preparing"
    worker_id: int


class WorkerStage(_Event):
    """A container of a worker was started for a stage other than the agent."""

    type: Literal["worker_stage"] = "worker_stage"
    worker_id: int
    stage: Stage
    name: str | None = None
    """Name of the check, for stage `check`."""
    container: str


class WorkerStageDone(_Event):
    """The container of a stage has ended."""

    type: Literal["worker_stage_done"] = "worker_stage_done"
    worker_id: int
    stage: Stage
    name: str | None = None
    duration: float
    problem: str | None = None
    """Problem of the stage; null for success."""


class WorkerStarted(_Event):
    """The worker's container was started."""

    type: Literal["worker_started"] = "worker_started"
    worker_id: int
    container: str
    ports: dict[int, int] = Field(default_factory=dict)


class WorkerOutput(_Event):
    """The latest line of a worker, escaped and shortened; fast output is thinned out."""

    type: Literal["worker_output"] = "worker_output"
    worker_id: int
    stream: Stream
    line: str


class WorkerProgress(_Event):
    """Cost and steps that the agent has reported so far."""

    type: Literal["worker_progress"] = "worker_progress"
    worker_id: int
    cost: float | None = None
    steps: int | None = None


class WorkerMeasured(_Event):
    """Resource usage of a worker at this moment; null where unknown. Emitted by a run's viewers."""

    type: Literal["worker_measured"] = "worker_measured"
    worker_id: int
    cpus: float | None = None
    """CPUs in use: 1.0 is one CPU, fully used."""
    memory: int | None = None
    """Bytes, without the page cache that the kernel can drop."""
    disk: int | None = None
    """Bytes in the directories that the worker writes to."""
    files: int | None = None
    """Files that the worker has changed, build output included."""


class Intervention(_Event):
    """A person should look at a worker."""

    type: Literal["intervention"] = "intervention"
    worker_id: int
    trigger: Trigger
    detail: str
    stops: bool
    """Whether the worker is stopped for this reason."""


class WorkerStopping(_Event):
    """The worker's container is being stopped."""

    type: Literal["worker_stopping"] = "worker_stopping"
    worker_id: int
    reason: str


class WorkerHarvesting(_Event):
    """The container is dead; the worker's commits are being packed and checked."""

    type: Literal["worker_harvesting"] = "worker_harvesting"
    worker_id: int


class WorkerRetrying(_Event):
    """An attempt failed and will be retried."""

    type: Literal["worker_retrying"] = "worker_retrying"
    worker_id: int
    attempt: int
    """Number of the next attempt: 2 is the first retry."""
    reason: str
    """Reason why the last attempt failed."""
    delay: float
    """Shortest delay until the next attempt, in seconds."""
    counted: bool = True
    """Whether the attempt uses up one of the worker's retries; waiting for a provider does not."""


class ProviderPaused(_Event):
    """A model's API refused further requests: no worker that uses the provider is started."""

    type: Literal["provider_paused"] = "provider_paused"
    provider: str
    seconds: float
    """Length of the pause from now on."""
    known: bool
    """Whether the API reported this length; otherwise the length is a guess."""


class SlotsChanged(_Event):
    """The limit of concurrent workers of a provider changed, after refused requests."""

    type: Literal["slots_changed"] = "slots_changed"
    provider: str
    slots: int
    most: int
    """The number without refused requests."""


class WorkerDone(_Event):
    """A worker has its final result."""

    type: Literal["worker_done"] = "worker_done"
    result: WorkerResult


class RunDone(_Event):
    """Every worker has its final result."""

    type: Literal["run_done"] = "run_done"
    result: RunResult


Event = (
    Notice
    | RunStarted
    | WorkerPreparing
    | WorkerStage
    | WorkerStageDone
    | WorkerStarted
    | WorkerOutput
    | WorkerProgress
    | WorkerMeasured
    | Intervention
    | WorkerStopping
    | WorkerHarvesting
    | WorkerRetrying
    | ProviderPaused
    | SlotsChanged
    | WorkerDone
    | RunDone
)
Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Ignore an event."""
