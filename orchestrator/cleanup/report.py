"""What a cleanup did with each worker."""

from pydantic import BaseModel, ConfigDict


class CleanedWorker(BaseModel):
    """What was removed of one worker, or would be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    worker_id: int
    branch: str
    worktree: str
    backup: str | None = None
    """The ref that keeps what was dirty or unmerged."""
    kept_refs: tuple[str, ...] = ()
    """Refs that keep what else it left; they stay."""
    note: str | None = None
    """What became of work that its run could not put on its branch."""
    problem: str | None = None
    """Why it could not be removed."""


class CleanupReport(BaseModel):
    """What a clean-up did, or would do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: tuple[CleanedWorker, ...]
    live: tuple[str, ...]
    """Ids of runs that go on, and were not touched."""
    leftovers: int
    """Containers, networks and volumes of finished runs that were removed."""
    problems: tuple[str, ...] = ()
    """What of those could not be removed, and why."""
    purged: tuple[str, ...] = ()
    """Backup refs that were dropped."""
    freed: int = 0
    """Bytes that were removed of files that workers wrote: copies of what is in commits, and what
    git ignores."""
    unchecked: tuple[str, ...] = ()
    """Ids of dead runs whose containers could not be looked for."""
