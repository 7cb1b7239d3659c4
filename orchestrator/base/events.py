"""Events of a run, which are passed to a callback when they happen."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.base.results import RunResult, Trigger, Turn, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec

Stream = Literal["stdout", "stderr"]


Stage = Literal["setup", "teardown", "check"]
"""Stages before and after the agent: commands that run in their own containers."""

WaitCause = Literal["dependency", "lock", "machine", "provider", "pace", "slot"]
"""Why a worker does not start yet: tasks that must end first; a task that runs alone or needs the
same resource; too few free CPUs, memory or disk; a provider that accepts no further worker; the
pause between two starts; no free slot.
"""


def _now() -> datetime:
    return datetime.now(UTC)


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime = Field(default_factory=_now)


UNSENT = "a notification could not be sent"
"""Beginning of the notice that is shown even with `--quiet`: who relies on notifications sees no
other.
"""


class Notice(_Event):
    """A message for the user, in one line."""

    type: Literal["notice"] = "notice"
    message: str


class RunStarted(_Event):
    """The run's plan is complete, and no worker has started yet."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    base: str
    workers: tuple[WorkerSpec, ...]
    slots: int


class WorkerWaiting(_Event):
    """A worker must wait before it can start, or the reason for its wait has changed.

    There is no event for a worker that has only waited, since the run started, because the maximum
    number of workers were running.
    """

    type: Literal["worker_waiting"] = "worker_waiting"
    worker_id: int
    cause: WaitCause
    reason: str


class WorkerPreparing(_Event):
    """The worker's turn has come, and its worktree is being created."""

    type: Literal["worker_preparing"] = "worker_preparing"
    worker_id: int


class WorkerStage(_Event):
    """A container for setup, teardown or a check of a worker was started."""

    type: Literal["worker_stage"] = "worker_stage"
    worker_id: int
    stage: Stage
    name: str | None = None
    """Name of the check; null for any other stage."""
    container: str


class WorkerStageDone(_Event):
    """A container for setup, teardown or a check of a worker has ended."""

    type: Literal["worker_stage_done"] = "worker_stage_done"
    worker_id: int
    stage: Stage
    name: str | None = None
    duration: float
    problem: str | None = None
    """Why the stage failed; null if it succeeded."""


class WorkerStarted(_Event):
    """The container with the worker's agent was started."""

    type: Literal["worker_started"] = "worker_started"
    worker_id: int
    container: str
    ports: dict[int, int] = Field(default_factory=dict)


class WorkerOutput(_Event):
    """The latest line of a worker's output, made harmless and shortened; not every line."""

    type: Literal["worker_output"] = "worker_output"
    worker_id: int
    stream: Stream
    line: str


class WorkerConnected(_Event):
    """A worker's latest connection through its gateway, allowed or refused, at a limited rate."""

    type: Literal["worker_connected"] = "worker_connected"
    worker_id: int
    host: str
    port: int | None = None
    """Port of the host; null for a name that the worker only tried to resolve."""
    refused: str | None = None
    """Why the connection was refused; null if it was allowed."""
    connections: int
    """Number of connections that were allowed so far."""
    refusals: int
    """Number of connections and of host name lookups that were refused so far."""


class WorkerProgress(_Event):
    """Cost and steps that the worker's agent has reported so far."""

    type: Literal["worker_progress"] = "worker_progress"
    worker_id: int
    cost: float | None = None
    steps: int | None = None


class WorkerMeasured(_Event):
    """Resource usage of a worker at one moment, for display; a field is null if unknown."""

    type: Literal["worker_measured"] = "worker_measured"
    worker_id: int
    cpus: float | None = None
    """CPUs in use; 1.0 means one fully used CPU."""
    memory: int | None = None
    """Memory in use in bytes, without the part of the page cache that the kernel can drop."""
    disk: int | None = None
    """Bytes on disk in the directories that the worker writes to."""
    files: int | None = None
    """Number of files that the worker has changed, build output included."""


class Intervention(_Event):
    """An alert: a person should look at the worker."""

    type: Literal["intervention"] = "intervention"
    worker_id: int
    trigger: Trigger
    detail: str
    stops: bool
    """Whether the worker is being stopped because of the alert."""


class WorkerStopping(_Event):
    """The worker's container is being stopped."""

    type: Literal["worker_stopping"] = "worker_stopping"
    worker_id: int
    reason: str


class WorkerHarvesting(_Event):
    """The worker's container has ended, and its commits are being packed and checked."""

    type: Literal["worker_harvesting"] = "worker_harvesting"
    worker_id: int


class WorkerRetrying(_Event):
    """An attempt of the worker failed, and another one will follow."""

    type: Literal["worker_retrying"] = "worker_retrying"
    worker_id: int
    attempt: int
    """Number of the next attempt; the first retry is attempt 2."""
    reason: str
    """Reason why the last attempt failed."""
    delay: float
    """Minimum number of seconds until the next attempt."""
    counted: bool = True
    """Whether the next attempt uses up one of the worker's retries. Waiting for a provider does
    not.
    """


class TurnStarted(_Event):
    """A worker that was continued with a message begins another turn."""

    type: Literal["turn_started"] = "turn_started"
    worker_id: int
    turn: int
    """Number of the turn; the task is turn 1."""
    attempt: int
    """Number of the turn's first attempt."""
    message: str
    cause: Literal["user", "checks"] = "user"
    continued: Literal["session", "new_session", "prompt", "command"]


class TurnDone(_Event):
    """A turn of a worker that was continued has ended."""

    type: Literal["turn_done"] = "turn_done"
    worker_id: int
    turn: Turn


class ProviderPaused(_Event):
    """A model's API refused requests, so no worker that uses the provider starts for a time."""

    type: Literal["provider_paused"] = "provider_paused"
    provider: str
    seconds: float
    """Number of seconds after the event during which no worker of the provider starts."""
    known: bool
    """Whether the API reported how long to wait; otherwise the time is a guess."""


class SlotsChanged(_Event):
    """The limit on simultaneous workers of a provider changed, because of refused requests."""

    type: Literal["slots_changed"] = "slots_changed"
    provider: str
    slots: int
    most: int
    """Maximum number of simultaneous workers if no request is refused."""


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
    | WorkerWaiting
    | WorkerPreparing
    | WorkerStage
    | WorkerStageDone
    | WorkerStarted
    | WorkerOutput
    | WorkerConnected
    | WorkerProgress
    | WorkerMeasured
    | Intervention
    | WorkerStopping
    | WorkerHarvesting
    | WorkerRetrying
    | TurnStarted
    | TurnDone
    | ProviderPaused
    | SlotsChanged
    | WorkerDone
    | RunDone
)
MOMENTARY = (WorkerOutput, WorkerConnected, WorkerMeasured)
"""Events that are shown but not recorded: they are frequent, and of no use afterwards."""
Emit = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Do nothing with an event, for callers that need no events."""
