"""The states of runs and workers, and the phases of a worker's time."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    DIED = "died"
    """The process of the run has died, and some of its workers have no result."""


class PhaseKind(StrEnum):
    """What a worker did or waited for during one phase."""

    QUEUE = "queue"
    """Waiting for dependencies of the task, a free slot, or free memory and disk space."""
    PREPARE = "prepare"
    """Creation of the worktree and the private git directory, and start of the services."""
    SETUP = "setup"
    START = "start"
    """From the end of the setup to the start of the agent's container."""
    AGENT = "agent"
    STOP = "stop"
    """Time from the request to stop, or from the end of the teardown, to the harvest."""
    TEARDOWN = "teardown"
    HARVEST = "harvest"
    """Packing, verifying and importing the worker's changes; listing changes after the checks."""
    CHECK = "check"
    RETRY = "retry"
    """Waiting for the next attempt after a failed attempt."""
    PROVIDER = "provider"
    """Waiting for a model provider that refused requests."""


WAITS = frozenset({PhaseKind.QUEUE, PhaseKind.RETRY, PhaseKind.PROVIDER})
"""Phases in which a worker waits and does not count as running."""


class Phase(NamedTuple):
    """A period of a worker's time. The phases of a worker follow each other without gaps."""

    kind: PhaseKind
    start: datetime
    end: datetime
    """End of the phase; if it has not ended, the end of the recorded time."""
    is_open: bool = False
    """Whether no end of the phase is recorded."""
    attempt: int = 1
    """Number of the attempt that the phase belongs to, counted from 1."""
    name: str | None = None
    """Name of the check, if the phase is a check."""
    problem: str | None = None
    """Why the setup, teardown or check failed; None if it succeeded, and in other phases."""

    @property
    def seconds(self) -> float:
        """Length of the phase in seconds."""
        return (self.end - self.start).total_seconds()

    def until(self, end: datetime, *, is_open: bool = False) -> "Phase":
        """Return the phase with an end, which is not before its start if a clock was set back."""
        return self._replace(end=max(end, self.start), is_open=is_open)


class WorkerState(StrEnum):
    """What a worker does, according to the last recorded event about it.

    The value is the name of the state wherever people read it; `WorkerView.word` also names final
    states.
    """

    QUEUED = "queued"
    RETRYING = "retrying"
    PREPARING = "preparing"
    SETUP = "setup"
    RUNNING = "running"
    STOPPING = "stopping"
    TEARDOWN = "teardown"
    HARVESTING = "harvesting"
    CHECK = "check"
    DONE = "done"

    @property
    def sentence(self) -> str:
        """What a message says of a worker in this state, after its number."""
        return _SENTENCES[self]


_SENTENCES = {
    WorkerState.QUEUED: "is queued",
    WorkerState.RETRYING: "waits for its next attempt",
    WorkerState.PREPARING: "is being prepared",
    WorkerState.SETUP: "is being set up",
    WorkerState.RUNNING: "is running",
    WorkerState.STOPPING: "is being stopped",
    WorkerState.TEARDOWN: "is being torn down",
    WorkerState.HARVESTING: "has ended, and its work is being committed",
    WorkerState.CHECK: "has ended, and its commit is being checked",
    WorkerState.DONE: "has ended",
}
NEEDS_ATTENTION = "needs attention"
"""Name of the state of a running worker at which a person should look."""

STATE_IN: Mapping[PhaseKind, WorkerState] = {
    PhaseKind.QUEUE: WorkerState.QUEUED,
    PhaseKind.PREPARE: WorkerState.PREPARING,
    PhaseKind.SETUP: WorkerState.SETUP,
    PhaseKind.START: WorkerState.PREPARING,
    PhaseKind.AGENT: WorkerState.RUNNING,
    PhaseKind.STOP: WorkerState.STOPPING,
    PhaseKind.TEARDOWN: WorkerState.TEARDOWN,
    PhaseKind.HARVEST: WorkerState.HARVESTING,
    PhaseKind.CHECK: WorkerState.CHECK,
    PhaseKind.RETRY: WorkerState.RETRYING,
    PhaseKind.PROVIDER: WorkerState.RETRYING,
}
"""The state of a worker in each phase."""
