"""The end of a container, and the reason if the orchestrator stopped it."""

from dataclasses import dataclass
from datetime import datetime

from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Noticed, Reason


@dataclass(frozen=True)
class Stop:
    """Reason for which the orchestrator stops a worker, and the measurement that led to it."""

    reason: Reason
    measured: str


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Report of the engine on the end of one worker's container."""

    started_at: datetime | None
    duration: float
    exit_status: ExitStatus | None
    """Exit status; None when the container never ran or its end was not observed."""
    stopped: Stop | None = None
    """Reason for which the orchestrator stopped the container; None if it ended by itself."""
    error: str | None = None
    """Error of the engine or of the orchestrator; None without error."""
    ports: tuple[tuple[int, int], ...] = ()
    peak_memory: int | None = None
    limits_hit: tuple[str, ...] = ()
    interventions: tuple[Noticed, ...] = ()
    """Findings during the run for which a person should have looked at the worker."""
    stopping: float = 0.0
    """Seconds from the first signal to the container's end; 0 if the container ended by itself."""
    lost_network: str | None = None
    """Why the container lost its network before its end; None if it did not."""
    log_failure: str | None = None
    """Reason why the log on disk is incomplete; None if it is complete."""
