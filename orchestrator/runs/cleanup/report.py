"""The options, the progress and the report of a cleanup."""

from collections import defaultdict
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine.interface.protocol import ContainerEngine, Leftover
from orchestrator.engine.interface.run_engine import RunEngine
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker, Wanted


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


@dataclass(kw_only=True)
class Cleanup:
    """The options and the progress of one cleanup, whose runs may have used different engines."""

    repository: Repository
    engine: ContainerEngine | None
    wanted: Wanted
    purge: bool
    dry_run: bool
    owners: dict[int, RecordedWorker]
    refs: frozenset[str]
    backups: list[tuple[str, int, str]]
    leftovers: dict[str, list[Leftover]] = field(default_factory=dict)
    cleaned: list[CleanedWorker] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    removed: int = 0
    problems: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    freed: int = 0
    known: dict[RunEngine, bool] = field(default_factory=dict)
    """Whether the engine of a run is that of the command."""
    failed: dict[RunEngine | None, OrchestratorError] = field(default_factory=dict)
    """Why engines of runs cannot be used; each is tried once."""
    unreached: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Runs that may have containers left, by their engine and why it cannot be used."""

    def report(self) -> CleanupReport:
        """Return the report of what was done."""
        for engine, runs in self.unreached.items():
            which = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs"
            self.problems.append(f"containers of {which}, {engine}")
        return CleanupReport(
            workers=tuple(sorted(self.cleaned, key=lambda worker: worker.worker_id)),
            live=tuple(self.live),
            others=tuple(self.others),
            leftovers=self.removed,
            problems=tuple(self.problems),
            purged=tuple(self.purged),
            freed=self.freed,
            unchecked=tuple(self.unchecked),
        )
