"""The phases of a worker, from which timelines are drawn."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


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


class Phase(BaseModel):
    """A period of a worker's time. The phases of a worker follow each other without gaps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
