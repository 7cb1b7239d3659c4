"""Remove what finished runs left; nothing that was written is lost, and no live run is touched.

Whatever of a worker is dirty or unmerged is first kept as a commit under
`refs/orchestrator/backup/<run>/<N>`, from where `restore` brings it back.
"""

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.engine.base import MANAGED, REPOSITORY, RUN, ContainerEngine
from orchestrator.errors import ConfigError, OrchestratorError, RepositoryError
from orchestrator.git import GitCommandError
from orchestrator.harvest import HarvestRefusedError
from orchestrator.plan import WorkerSpec
from orchestrator.record import RunDirectory, RunRecord, all_runs
from orchestrator.repository import BACKUPS, BRANCHES, Repository, snapshot
from orchestrator.salvage import is_stranded, salvage
from orchestrator.secret_files import forget
from orchestrator.workspace import remove_tree
from orchestrator.worktree import Worktree, add_worktree, open_worktree, remove_worktree


class CleanedWorker(BaseModel):
    """What was removed of one worker, or would be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    worker_id: int
    branch: str
    worktree: str
    backup: str | None = None
    """The ref that keeps what was dirty or unmerged."""
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
    """Containers, networks and volumes of finished runs."""
    purged: tuple[str, ...] = ()
    """Backup refs that were dropped."""


class RestoredWorker(BaseModel):
    """A worker whose branch and worktree are back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    worker_id: int
    branch: str
    worktree: str


@dataclass(frozen=True)
class _Finished:
    """A worker of a finished run that still has a worktree or a branch."""

    directory: RunDirectory
    record: RunRecord
    spec: WorkerSpec

    @property
    def path(self) -> Path:
        return self.record.top / self.spec.directory

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.spec.branch}"

    def backup(self, round_number: int = 1) -> str:
        """Name the ref that keeps its work; rounds after a restore have names of their own."""
        suffix = "" if round_number == 1 else f".{round_number}"
        return f"{BACKUPS}{self.directory.run_id}{suffix}/{self.spec.worker_id}"


def cleanup(
    root: Path,
    *,
    engine: ContainerEngine | None,
    workers: tuple[int, ...] = (),
    run_id: str | None = None,
    purge: bool = False,
    dry_run: bool = False,
) -> CleanupReport:
    """Remove worktrees, branches and Docker objects of finished runs.

    Args:
        root: Anywhere in the repository.
        engine: None leaves its objects alone.
        workers: Only these numbers. Default: all.
        run_id: Only this run. Default: all.
        purge: Drop the backups too, old ones included.
        dry_run: Touch nothing, only say what would be done.

    Raises:
        RepositoryError: There is no repository.
        ConfigError: There is no such run.
        EngineError: The engine does not answer.
    """
    repository = Repository(root)
    runs = _select(repository, run_id)
    with repository.lock():
        # A run that is being made, with the lock held, has no lease for a moment.
        live = tuple(run.run_id for run in runs if run.is_live())
    finished = [run for run in runs if run.run_id not in live]
    leftovers = _remove_leftovers(repository, engine, finished, workers, dry_run=dry_run)
    cleaned = [
        _clean(repository, engine, worker, purge=purge, dry_run=dry_run)
        for worker in _remaining(repository, finished, workers)
    ]
    purged = _purge(repository, finished, workers, dry_run=dry_run) if purge else ()
    if not dry_run:
        for run in finished:
            forget(run.run_id, os.environ)
    if not dry_run and not workers:
        for run in finished:
            _forget_scratch(run)
    return CleanupReport(workers=tuple(cleaned), live=live, leftovers=leftovers, purged=purged)


def _select(repository: Repository, run_id: str | None) -> list[RunDirectory]:
    runs = list(all_runs(repository.state_dir))
    if run_id is None:
        return runs
    chosen = [run for run in runs if run.run_id == run_id]
    if not chosen:
        known = ", ".join(run.run_id for run in runs) or "none"
        raise ConfigError(f"no such run: `{run_id}`", hint=f"runs of this repository: {known}")
    return chosen


def _remaining(
    repository: Repository, finished: list[RunDirectory], workers: tuple[int, ...]
) -> list[_Finished]:
    """List workers that still have something.

    A number may have been used again: it belongs to the newest run that had it, live ones included.
    """
    owners: dict[int, _Finished] = {}
    for run in all_runs(repository.state_dir):
        record = run.record()
        if record is not None:
            owners |= {spec.worker_id: _Finished(run, record, spec) for spec in record.workers}
    ids = {run.run_id for run in finished}
    return [
        worker
        for number, worker in sorted(owners.items())
        if worker.directory.run_id in ids
        and (not workers or number in workers)
        and _is_present(repository, worker)
    ]


def _is_present(repository: Repository, worker: _Finished) -> bool:
    return worker.path.exists() or _commit(repository, worker.ref) is not None


def _commit(repository: Repository, ref: str) -> str | None:
    try:
        return repository.git.text("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    except GitCommandError:
        return None


def _clean(
    repository: Repository,
    engine: ContainerEngine | None,
    worker: _Finished,
    *,
    purge: bool,
    dry_run: bool,
) -> CleanedWorker:
    result = CleanedWorker(
        run_id=worker.directory.run_id,
        worker_id=worker.spec.worker_id,
        branch=worker.spec.branch,
        worktree=str(worker.path),
    )
    try:
        if is_stranded(worker.directory, worker.spec) and not purge:
            note = _salvaged(repository, engine, worker, dry_run=dry_run)
            result = result.model_copy(update={"note": note})
        with repository.lock():
            tip = _commit(repository, worker.ref)
            kept = None if purge else _work_to_keep(repository, worker, tip)
            backup = _backup_ref(repository, worker, kept) if kept else None
            if not dry_run:
                if kept and backup:
                    repository.git.run("update-ref", backup, kept)
                _remove(repository, worker, tip)
    except (OrchestratorError, OSError) as error:
        return result.model_copy(update={"problem": str(error)})
    return result.model_copy(update={"backup": backup})


def _salvaged(
    repository: Repository, engine: ContainerEngine | None, worker: _Finished, *, dry_run: bool
) -> str:
    """Put a dead run's work on its branch before the branch is kept; say what came of it."""
    if engine is None:
        raise RepositoryError("its run died; its work can only be brought home with the engine")
    if dry_run:
        return "its run died; its work would be committed first"
    try:
        salvage(repository, engine, worker.directory, worker.record, worker.spec)
    except HarvestRefusedError as error:
        kept = worker.directory.worker(worker.spec.worker_id)
        return f"its run died; its work was refused ({error.message}) and is kept in {kept}"
    return "its run died; its work was committed first"


def _work_to_keep(repository: Repository, worker: _Finished, tip: str | None) -> str | None:
    """Give the commit that holds what would be lost, or None when all of it is merged."""
    worktree = _worktree(worker)
    kept = tip
    if worktree is not None:
        kept = snapshot(
            worktree.git_dir,
            worktree.path,
            parent=_head(repository, worktree) or worker.record.base,
            message=f"architect: what was not committed in {worker.spec.directory}",
            scratch=worker.directory.path / f"index-{worker.spec.worker_id}",
            identity=repository.identity(),
            config=repository.without_filters(),
        )
    if kept is None or _is_merged(repository, kept):
        return None
    return kept


def _worktree(worker: _Finished) -> Worktree | None:
    try:
        return open_worktree(worker.path, worker.spec.branch)
    except RepositoryError:
        return None


def _head(repository: Repository, worktree: Worktree) -> str | None:
    # Where the worktree is now: its user may have committed, or checked something else out.
    return _commit(repository, f"worktrees/{worktree.git_dir.name}/HEAD")


def _is_merged(repository: Repository, commit: str) -> bool:
    """Tell whether a branch, remote branch or tag reaches `commit` that is no worker's own."""
    refs = repository.git.text(
        "for-each-ref", f"--contains={commit}", "--format=%(refname)",
        "refs/heads", "refs/remotes", "refs/tags",
    ).splitlines()  # fmt: skip
    return not all(ref.startswith(BRANCHES) for ref in refs)


def _backup_ref(repository: Repository, worker: _Finished, commit: str) -> str:
    """Name a ref for `commit` that holds nothing which `commit` does not reach."""
    for round_number in count(1):
        ref = worker.backup(round_number)
        held = _commit(repository, ref)
        if held is None or repository.git.succeeds("merge-base", "--is-ancestor", held, commit):
            return ref
    raise AssertionError("unreachable")


def _remove(repository: Repository, worker: _Finished, tip: str | None) -> None:
    if worker.path.exists() and _worktree(worker) is None:
        raise RepositoryError(f"{worker.path} is not the worktree any more; it was left alone")
    try:
        remove_worktree(repository, worker.path)
    except GitCommandError:
        if worker.path.exists():
            raise
    if tip is None:
        return
    elsewhere = repository.git.text("for-each-ref", "--format=%(worktreepath)", worker.ref)
    if elsewhere:
        raise RepositoryError(f"`{worker.spec.branch}` is checked out in {elsewhere}")
    repository.drop_branch(worker.spec.branch, at=tip)


def _remove_leftovers(
    repository: Repository,
    engine: ContainerEngine | None,
    finished: list[RunDirectory],
    workers: tuple[int, ...],
    *,
    dry_run: bool,
) -> int:
    if engine is None or workers:
        return 0
    ids = {run.run_id for run in finished}
    labels = {MANAGED: "true", REPOSITORY: str(repository.common_dir)}
    ours = [left for left in engine.leftovers(labels) if left.labels.get(RUN) in ids]
    if not dry_run:
        for leftover in ours:
            engine.remove(leftover)
    return len(ours)


def _purge(
    repository: Repository, runs: list[RunDirectory], workers: tuple[int, ...], *, dry_run: bool
) -> tuple[str, ...]:
    ids = {run.run_id for run in runs}
    refs = repository.git.text("for-each-ref", "--format=%(refname)", BACKUPS).splitlines()
    dropped = []
    for ref in refs:
        run_id, number = _read_backup(ref)
        if run_id in ids and (not workers or number in workers):
            dropped.append(ref)
            if not dry_run:
                repository.git.run("update-ref", "-d", ref)
    return tuple(dropped)


def _forget_scratch(run: RunDirectory) -> None:
    """Drop what workers wrote aside; records and logs stay, and so does a refused harvest."""
    record = run.record()
    if not any(is_stranded(run, spec) for spec in (record.workers if record else ())):
        remove_tree(run.objects)
    for spec in record.workers if record else ():
        path = record.top / spec.directory if record else None
        state = run.worker(spec.worker_id)
        refused = (state / "git").exists()
        if path is not None and not path.exists() and not refused:
            for name in ("upper", "copy", "overlay"):
                if (state / name).exists():
                    remove_tree(state / name)


def restore(
    root: Path, *, workers: tuple[int, ...] = (), run_id: str | None = None
) -> tuple[RestoredWorker, ...]:
    """Bring back branches and worktrees that a clean-up kept as backups, the newest first.

    Args:
        root: Anywhere in the repository.
        workers: Only these numbers. Default: all that have a backup.
        run_id: Only of this run.

    Raises:
        ConfigError: There is no such backup, or a branch or directory is in its way.
    """
    repository = Repository(root)
    chosen: dict[int, str] = {}
    listing = ("for-each-ref", "--sort=committerdate", "--format=%(refname)", BACKUPS)
    for ref in repository.git.text(*listing).splitlines():
        run, number = _read_backup(ref)
        if run_id in (None, run) and (not workers or number in workers):
            chosen[number] = ref
    missing = set(workers) - set(chosen)
    if missing or not chosen:
        numbers = ", ".join(str(number) for number in sorted(missing))
        what = f"worker {numbers}" if numbers else "any worker"
        raise ConfigError(
            f"no backup of {what}",
            hint=f"backups are under {BACKUPS}: `git for-each-ref {BACKUPS}`",
        )
    with repository.lock():
        return tuple(_restore(repository, number, ref) for number, ref in sorted(chosen.items()))


def _read_backup(ref: str) -> tuple[str, int]:
    run_id, _, number = ref.removeprefix(BACKUPS).partition("/")
    return run_id.partition(".")[0], int(number)


def _restore(repository: Repository, number: int, ref: str) -> RestoredWorker:
    spec = WorkerSpec(worker_id=number, task="", model=None)
    path = repository.top / spec.directory
    if path.exists() or _commit(repository, f"refs/heads/{spec.branch}"):
        raise ConfigError(
            f"`{spec.branch}` or {path} exists already",
            hint=f"clean it up first: `orchestrator parallel-cleanup {number}`",
        )
    repository.exclude_worktrees()
    repository.git.run("branch", "--no-track", spec.branch, ref)
    add_worktree(repository, spec)
    return RestoredWorker(
        run_id=_read_backup(ref)[0],
        worker_id=number,
        branch=spec.branch,
        worktree=str(path),
    )
