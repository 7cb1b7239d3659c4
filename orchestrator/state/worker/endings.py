"""How a worker's container ended, and, if the orchestrator stopped the container, why."""

from dataclasses import dataclass
from datetime import datetime

from orchestrator.base.results import Noticed, Reason
from orchestrator.engine.interface.protocol import ExitStatus


@dataclass(frozen=True)
class Stop:
    """Why the orchestrator stops a worker, with the measurement that led to the decision."""

    reason: Reason
    measured: str


@dataclass(frozen=True)
class DeadService:
    """A service of a worker that ended before the worker's task."""

    name: str
    why: str
    """How it ended, as the end of a sentence about the service."""
    required: bool
    """Whether the worker fails because of it."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one container of a worker ended, as the engine reported it."""

    started_at: datetime | None
    duration: float
    exit_status: ExitStatus | None
    """Exit status; None if the container never ran or its end was not observed."""
    stopped: Stop | None = None
    """Why the orchestrator stopped the container; None if the container ended by itself."""
    error: str | None = None
    """Error of the engine or of the orchestrator; None if there was none."""
    ports: tuple[tuple[int, int], ...] = ()
    cpu_time: float | None = None
    """CPU time of all processes, in seconds."""
    peak_memory: int | None = None
    """Largest memory use in bytes."""
    uncounted: str | None = None
    """Why a counter of the kernel is unknown; None if all are known."""
    limits_hit: tuple[str, ...] = ()
    interventions: tuple[Noticed, ...] = ()
    """Alerts during the run, for which the user should have looked at the worker."""
    stopping: float = 0.0
    """Seconds from the first signal until the container's end; 0 if the container ended by itself.
    """
    lost_network: str | None = None
    """Why the container lost its network before its end; None if the network was never lost."""
    dead_services: tuple[DeadService, ...] = ()
    log_failure: str | None = None
    """Why the worker's log on disk is incomplete; None if the log is complete."""
