"""What happens in a run, told as it happens to a callback."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.results import RunResult, Trigger, WorkerResult
from orchestrator.worker_spec import WorkerSpec

Stream = Literal["stdout", "stderr"]


Stage = Literal["setup", "teardown", "check"]
"""What runs beside the agent, in containers of its own."""


def _now() -> datetime:
    return datetime.now(UTC)


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime = Field(default_factory=_now)


class Notice(_Event):
    """Something people should know, in one line."""

    type: Literal["notice"] = "notice"
    message: str


class RunStarted(_Event):
    """The plan stands; nothing runs yet."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    base: str
    workers: tuple[WorkerSpec, ...]
    slots: int


class WorkerPreparing(_Event):
    """A slot is free: the worktree is being made."""

    type: Literal["worker_preparing"] = "worker_preparing"
    worker_id: int


class WorkerStage(_Event):
    """A container of a worker runs that is not the agent's."""

    type: Literal["worker_stage"] = "worker_stage"
    worker_id: int
    stage: Stage
    name: str | None = None
    """Which check it is."""
    container: str


class WorkerStageDone(_Event):
    """It has ended."""

    type: Literal["worker_stage_done"] = "worker_stage_done"
    worker_id: int
    stage: Stage
    name: str | None = None
    duration: float
    problem: str | None = None
    """Why it is not as it should be; null when it is."""


class WorkerStarted(_Event):
    """The container runs."""

    type: Literal["worker_started"] = "worker_started"
    worker_id: int
    container: str
    ports: dict[int, int] = Field(default_factory=dict)


class WorkerOutput(_Event):
    """The latest line of a worker; lines may be left out when they come fast. Cleaned, bounded."""

    type: Literal["worker_output"] = "worker_output"
    worker_id: int
    stream: Stream
    line: str


class WorkerProgress(_Event):
    """What the agent has used so far, by its own word."""

    type: Literal["worker_progress"] = "worker_progress"
    worker_id: int
    cost: float | None = None
    steps: int | None = None


class WorkerMeasured(_Event):
    """What a worker uses at this moment, as far as it is known; told by whoever looks at it."""

    type: Literal["worker_measured"] = "worker_measured"
    worker_id: int
    cpus: float | None = None
    """CPUs in use: 1.0 is one of them, wholly."""
    memory: int | None = None
    """Bytes, without the page cache that can be dropped."""
    disk: int | None = None
    """Bytes in the directories that it writes to."""
    files: int | None = None
    """Files it has changed, build output included."""


class Intervention(_Event):
    """Somebody should look at a worker."""

    type: Literal["intervention"] = "intervention"
    worker_id: int
    trigger: Trigger
    detail: str
    stops: bool
    """Whether it is stopped for that."""


class WorkerStopping(_Event):
    """We are ending the container, and why."""

    type: Literal["worker_stopping"] = "worker_stopping"
    worker_id: int
    reason: str


class WorkerHarvesting(_Event):
    """The container is dead; its work is being fetched and checked."""

    type: Literal["worker_harvesting"] = "worker_harvesting"
    worker_id: int


class WorkerRetrying(_Event):
    """An attempt failed; there is to be another."""

    type: Literal["worker_retrying"] = "worker_retrying"
    worker_id: int
    attempt: int
    """The one to come: 2 is the first that is a retry."""
    reason: str
    """Why the one before failed."""
    delay: float
    """Seconds until then, at least."""
    counted: bool = True
    """Whether that is one of its retries; or it waits for its provider."""


class ProviderPaused(_Event):
    """A model's API refused further requests: no worker starts that uses it."""

    type: Literal["provider_paused"] = "provider_paused"
    provider: str
    seconds: float
    """From now on."""
    known: bool
    """Whether it said so itself; else it is a guess."""


class SlotsChanged(_Event):
    """As often as a provider refuses requests, fewer workers use it at one time."""

    type: Literal["slots_changed"] = "slots_changed"
    provider: str
    slots: int
    most: int
    """Without that."""


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
    """Watch nothing."""
