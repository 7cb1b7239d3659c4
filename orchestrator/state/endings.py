"""Why a container was stopped, and how it ended."""

from dataclasses import dataclass
from datetime import datetime

from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Noticed, Reason


@dataclass(frozen=True)
class Stop:
    """Why we end a worker, and what was measured."""

    reason: Reason
    measured: str


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What the engine saw of one worker."""

    started_at: datetime | None
    duration: float
    exit_status: ExitStatus | None
    """None when the container never ran or its end was not seen."""
    stopped: Stop | None = None
    """Why we ended it, if we did."""
    error: str | None = None
    """What the engine, or we, could not do."""
    ports: tuple[tuple[int, int], ...] = ()
    peak_memory: int | None = None
    limits_hit: tuple[str, ...] = ()
    interventions: tuple[Noticed, ...] = ()
    """What somebody should have looked at while it ran."""
    log_failure: str | None = None
    """Why the log on disk is not whole, if it is not."""
