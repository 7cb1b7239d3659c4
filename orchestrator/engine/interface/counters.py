"""What the kernel counted for a container, as every engine returns it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What the kernel counted for a container, from its start to its end; None is unknown."""

    cpu_time: float | None = None
    """CPU time of all processes in seconds, summed over all CPUs."""
    peak_memory: int | None = None
    """Largest memory use in bytes, with the page cache."""
    memory_kills: int | None = None
    """Number of processes that the kernel killed at the limit of memory."""
    refused_processes: int | None = None
    """Number of times that the kernel refused a process or thread at the limit of processes."""
    missing: str | None = None
    """Why a number is unknown; None if all are known."""
