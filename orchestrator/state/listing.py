"""The runs of a repository, and what each of them still holds."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.files.disk_usage import DiskUse, disk_use
from orchestrator.git.kept_refs import list_kept
from orchestrator.git.repository import Repository
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.state.history import RunHistory, RunState, WorkerState, WorkerView, attempts
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_record import RunRecord
from orchestrator.state.worker_directory import Store
from orchestrator.worker_spec import WorkerSpec

MOST_FILES = 100_000
"""Files of one worker that are counted; a listing must not take minutes."""


class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ListedWorker(_Listed):
    """A worker, and what is left of it."""

    worker_id: int
    name: str | None
    """The id of its task, in a workflow."""
    task: str
    model: str
    state: WorkerState
    """The last that its run said of it: `queued`, `preparing`, `running`, `stopping`,
    `harvesting`, `retrying` or `done`."""
    status: Status | None
    """How it ended; null until it has."""
    reason: Reason | None
    branch: str | None
    """Null when it is gone, or another run's by now."""
    worktree_path: str | None
    """Absolute; null as with `branch`."""
    kept_refs: tuple[str, ...]
    """Refs of what it left and its branch does not have."""
    container: str | None
    """The engine's id, while it has one by the run's own word."""
    started_at: datetime | None
    disk: int
    """Bytes in the worktree and in the worker's state directory."""
    disk_complete: bool
    """Whether all of it was counted."""


class ListedRun(_Listed):
    """A run and its workers."""

    run_id: str
    state: RunState
    """`running`, `finished`, or `died` when its process ended before its workers were done."""
    created_at: datetime
    base: str
    top: str
    """The checkout it was started from."""
    workers: tuple[ListedWorker, ...]


class Listing(_Listed):
    """What `orchestrator ls --json` prints."""

    runs: tuple[ListedRun, ...]
    """The oldest first."""


def list_runs(repository: Repository, *, everything: bool = False) -> Listing:
    """List the runs that go on, or of which more is left than the record.

    Args:
        repository: Whose.
        everything: The others too.
    """
    records = {run: record for run in all_runs(repository.state_dir) if (record := run.record())}
    refs = repository.git.text("for-each-ref", "--format=%(refname)", "refs/heads")
    branches = frozenset(refs.splitlines())
    entries = [(run, record, spec) for run, record in records.items() for spec in record.workers]
    holders = {number: run.run_id for number, (run, *_) in holders_of(entries, branches).items()}
    kept = list_kept(repository)
    shown = []
    for run, record in records.items():
        place = _Place(run, record, holders, branches)
        place.kept_refs = [(number, ref) for name, number, ref in kept if name == run.run_id]
        if everything or place.holds_something():
            shown.append(_listed(place))
    return Listing(runs=tuple(shown))


Entry = tuple[RunDirectory, RunRecord, WorkerSpec]
"""A worker of a run."""


def holders_of(entries: Iterable[Entry], refs: frozenset[str]) -> dict[int, Entry]:
    """Return the worker that each number stands for.

    That is the one of the newest run which had the number; where templates named them otherwise,
    of the newest of which a worktree or a branch is left.

    Args:
        entries: The workers of all runs, the oldest run first.
        refs: The branches that exist.
    """
    found: dict[int, Entry] = {}
    for entry in entries:
        spec = entry[2]
        before = found.get(spec.worker_id)
        if (
            before is None
            or spec.collides(before[2])
            or is_left(*entry[1:], refs)
            or not is_left(*before[1:], refs)
        ):
            found[spec.worker_id] = entry
    return found


def is_left(record: RunRecord, spec: WorkerSpec, refs: frozenset[str]) -> bool:
    """Check whether the worktree or the branch of a worker is there.

    Args:
        record: Of its run.
        spec: The worker.
        refs: The branches that exist.
    """
    return (record.top / spec.directory).exists() or f"refs/heads/{spec.branch}" in refs


class _Place:
    """Where things of one run may be."""

    def __init__(
        self,
        run: RunDirectory,
        record: RunRecord,
        holders: Mapping[int, str],
        branches: frozenset[str],
    ) -> None:
        self.run = run
        self.record = record
        # A number may have been used again: it is the newest run's that had it.
        self._mine = [spec for spec in record.workers if holders.get(spec.worker_id) == run.run_id]
        self._branches = branches
        self.kept_refs: list[tuple[int, str]] = []

    def worktrees(self) -> dict[int, Path]:
        """Return the worktrees that are there."""
        paths = {spec.worker_id: self.record.top / spec.directory for spec in self._mine}
        return {n: path for n, path in paths.items() if path.is_dir() and not path.is_symlink()}

    def branches(self) -> dict[int, str]:
        """Return the branches that are there."""
        names = {spec.worker_id: spec.branch for spec in self._mine}
        return {n: name for n, name in names.items() if f"refs/heads/{name}" in self._branches}

    def holds_something(self) -> bool:
        """Return whether the run goes on, or more than its record is left."""
        if self.worktrees() or self.branches() or self.run.is_live():
            return True
        stores = (Store(root=self.run.worker(spec.worker_id)) for spec in self.record.workers)
        return any(path.exists() for s in stores for path in (s.git, s.upper, s.copy))


def _listed(place: _Place) -> ListedRun:
    worktrees, branches = place.worktrees(), place.branches()
    with RunHistory(place.run, place.record) as history:
        state = history.state()
        while history.read():
            pass
        workers = tuple(
            _worker(
                worker,
                result=history.worker_result(number, live=state is RunState.RUNNING),
                branch=branches.get(number),
                kept_refs=tuple(ref for worker_id, ref in place.kept_refs if worker_id == number),
                worktree=worktrees.get(number),
                used=_used(place.run, number, worktrees.get(number)),
            )
            for number, worker in history.workers.items()
        )
    return ListedRun(
        run_id=place.run.run_id,
        state=state,
        created_at=place.record.created_at,
        base=place.record.base,
        top=str(place.record.top),
        workers=workers,
    )


def _used(run: RunDirectory, number: int, worktree: Path | None) -> DiskUse:
    states = (path for _, path in attempts(run, number))
    return disk_use([*states, *([worktree] if worktree else [])], most_files=MOST_FILES)


def _worker(
    worker: WorkerView,
    *,
    result: WorkerResult | None,
    branch: str | None,
    kept_refs: tuple[str, ...],
    worktree: Path | None,
    used: DiskUse,
) -> ListedWorker:
    return ListedWorker(
        worker_id=worker.spec.worker_id,
        name=worker.spec.name,
        task=worker.spec.task,
        model=worker.spec.model_name,
        state=WorkerState.DONE if result else worker.state,
        status=result.status if result else None,
        reason=result.reason if result else None,
        branch=branch,
        worktree_path=str(worktree) if worktree else None,
        kept_refs=kept_refs,
        container=worker.container,
        started_at=worker.started_at,
        disk=used.size,
        disk_complete=used.files <= MOST_FILES and not used.hidden,
    )
