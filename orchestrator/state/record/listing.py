"""List a repository's runs, with the worktrees, branches and disk space that they use."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.remove_tree import entry_names
from orchestrator.base.results import Reason, Status
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.repository import KEPT, Repository, worker_refs
from orchestrator.state.record.history import RunHistory, attempts
from orchestrator.state.record.states import RunState, WorkerState
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import RunOutline, holders_of, is_left, read_outline

_SCRATCH = frozenset({"git", "upper", "copy"})
"""Names of files in a worker's state directory that a cleanup removes; see
`worker_directory.Store`.
"""
MOST_FILES = 100_000
"""Maximum number of files that are counted for one worker, so that a listing takes only seconds.
"""


class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListedWorker(_Listed):
    """A worker in the list of runs, with its files and refs that still exist."""

    worker_id: int
    name: str | None
    """Id of the worker's task in a workflow."""
    task: str
    model: str
    state: WorkerState
    """The worker's latest state: `queued`, `preparing`, `running`, `stopping`, `harvesting`,
    `retrying` or `done`.
    """
    status: Status | None
    """Final status; null before the worker's end."""
    reason: Reason | None
    outcome: str = Field(default="", exclude=True)
    """The final state with its reason, or the present state, in words."""
    branch: str | None
    """Name of the branch; null if the branch is gone or belongs to another run now."""
    worktree_path: str | None
    """Absolute path of the worktree; null if the worktree is gone or belongs to another run now."""
    kept_refs: tuple[str, ...]
    """Refs of the worker's commits that are not on its branch."""
    container: str | None
    """The engine's id of the worker's container, as the run recorded it."""
    started_at: datetime | None
    disk: int
    """Size in bytes of the worktree and the worker's state directory."""
    disk_complete: bool
    """Whether `disk` includes all files; false if there are too many files to count."""


class ListedRun(_Listed):
    """A run in the list of runs, with its workers."""

    run_id: str
    state: RunState
    """`running`, `finished`, or `died` when its process ended before its workers were done."""
    owner: str | None = None
    """The user whose run it is, if it cannot be read; null for runs that can be read. The list then
    has none of its workers, and `state` is `finished` unless its process lives.
    """
    created_at: datetime | None
    """Null if unknown."""
    base: str
    top: str
    """Top directory of the checkout from which the run was started."""
    workers: tuple[ListedWorker, ...]


class Listing(_Listed):
    """The output of `orchestrator ls --json`."""

    runs: tuple[ListedRun, ...]
    """The runs, oldest first."""


def list_runs(repository: Repository, *, everything: bool = False) -> Listing:
    """List runs that are live or have more than a record on disk; with `everything`, all runs."""
    runs = list(all_runs(repository.state_dir))
    records = {run: record for run in runs if (record := read_outline(run))}
    refs = repository.git.text("for-each-ref", "--format=%(refname)", "refs/heads")
    branches = frozenset(split_lines(refs))
    entries = [(run, record, spec) for run, record in records.items() for spec in record.workers]
    holders = {number: run.run_id for number, (run, *_) in holders_of(entries, branches).items()}
    kept = worker_refs(repository.git, KEPT)
    shown = []
    for run in runs:
        if (user := run.other_user) is not None:
            shown += _unreadable(run, user, records.get(run), branches, everything=everything)
            continue
        if (record := records.get(run)) is None:
            continue
        place = _Place(run, record, holders, branches)
        place.kept_refs = [(number, ref) for name, number, ref in kept if name == run.run_id]
        if everything or place.holds_something():
            shown.append(_entry(place))
    return Listing(runs=tuple(shown))


def _unreadable(
    run: RunDirectory,
    user: str,
    record: RunOutline | None,
    refs: frozenset[str],
    *,
    everything: bool,
) -> list[ListedRun]:
    """Return the entry of another user's run, if it is live or any of it may be left."""
    live = run.is_live()
    left = record is None or any(is_left(record, spec, refs) for spec in record.workers)
    if not (everything or live or left):
        return []
    return [
        ListedRun(
            run_id=run.run_id,
            state=RunState.RUNNING if live else RunState.FINISHED,
            owner=user,
            created_at=record.created_at if record else None,
            base=record.base if record else "",
            top=str(record.top) if record else "",
            workers=(),
        )
    ]


class _Place:
    """The worktrees, branches and refs of one run that still exist."""

    def __init__(
        self,
        run: RunDirectory,
        record: RunOutline,
        holders: Mapping[int, str],
        branches: frozenset[str],
    ) -> None:
        self.run = run
        self.record = record
        # If several runs used a number, its worktree and branch belong to the newest of them.
        self._mine = [spec for spec in record.workers if holders.get(spec.worker_id) == run.run_id]
        self._branches = branches
        self.kept_refs: list[tuple[int, str]] = []

    def worktrees(self) -> dict[int, Path]:
        """Return the existing worktrees of the run, by worker number."""
        paths = {spec.worker_id: self.record.top / spec.directory for spec in self._mine}
        return {n: path for n, path in paths.items() if path.is_dir() and not path.is_symlink()}

    def branches(self) -> dict[int, str]:
        """Return the existing branches of the run, by worker number."""
        names = {spec.worker_id: spec.branch for spec in self._mine}
        return {n: name for n, name in names.items() if f"refs/heads/{name}" in self._branches}

    def holds_something(self) -> bool:
        """Return whether the run is in progress, or has any files or refs beside its record."""
        if self.worktrees() or self.branches() or self.run.is_live():
            return True
        states = (self.run.worker(spec.worker_id) for spec in self.record.workers)
        return any(not _SCRATCH.isdisjoint(entry_names(state)) for state in states)


def _entry(place: _Place) -> ListedRun:
    with RunHistory(place.run, place.record) as history:
        view = history.snapshot()
    worktrees, branches = place.worktrees(), place.branches()
    workers = []
    for number, worker in view.by_number.items():
        worktree = worktrees.get(number)
        states = [path for _, path in attempts(place.run, number)]
        trees = [*states, *([worktree] if worktree else [])]
        used = disk_use(trees, most_files=MOST_FILES)
        workers.append(ListedWorker(
            worker_id=number,
            name=worker.name,
            task=worker.spec.task,
            model=worker.spec.model_name,
            state=worker.state,
            status=worker.status,
            reason=worker.reason,
            outcome=worker.ending,
            branch=branches.get(number),
            worktree_path=str(worktree) if worktree else None,
            kept_refs=tuple(ref for owner, ref in place.kept_refs if owner == number),
            container=worker.container,
            started_at=worker.started_at,
            disk=used.size,
            disk_complete=used.files <= MOST_FILES and not used.hidden,
        ))  # fmt: skip
    return ListedRun(
        run_id=place.run.run_id,
        state=view.state,
        created_at=place.record.created_at,
        base=place.record.base,
        top=str(place.record.top),
        workers=tuple(workers),
    )
