"""The report of a cleanup."""

from pydantic import BaseModel, ConfigDict


class CleanedWorker(BaseModel):
    """A worker that was, or would be, removed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    worker_id: int
    branch: str
    worktree: str
    backup: str | None = None
    """The backup ref with uncommitted or unmerged work; null without such work."""
    kept_refs: tuple[str, ...] = ()
    """Refs of the worker's commits that are not on its branch; the cleanup keeps these refs."""
    note: str | None = None
    """What happened to work that was not committed when the run ended."""
    problem: str | None = None
    """Reason why the worker could not be removed."""


class CleanupReport(BaseModel):
    """Actions that a cleanup performed, or would perform."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: tuple[CleanedWorker, ...]
    live: tuple[str, ...]
    """Ids of live runs with workers that were not removed."""
    others: tuple[str, ...] = ()
    """Runs that this user may not read, or that are not recorded here, which were not touched."""
    leftovers: int
    """Number of removed containers, networks and volumes of finished runs."""
    problems: tuple[str, ...] = ()
    """Objects that could not be removed, and why."""
    purged: tuple[str, ...] = ()
    """Backup refs, records and kept results that were removed."""
    freed: int = 0
    """Bytes of removed files that workers wrote: copies of committed files, and ignored files."""
    unchecked: tuple[str, ...] = ()
    """Ids of dead runs whose containers could not be checked."""
