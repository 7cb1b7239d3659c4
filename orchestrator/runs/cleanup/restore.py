"""Restore a worker's branch and worktree from its backup."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.base.errors import ConfigError
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.repository.checkouts.worktree import add_worktree, check_out
from orchestrator.repository.incoming.kept_refs import list_kept
from orchestrator.repository.repository import BACKUPS, Repository
from orchestrator.runs.cleanup.backups import list_backups
from orchestrator.runs.cleanup.inventory import owners, worker_refs
from orchestrator.state.record.history import find_run
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_outline import read_outline


class RestoredWorker(BaseModel):
    """A worker whose branch and worktree were restored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    worker_id: int
    branch: str
    worktree: str
    kept_refs: tuple[str, ...] = ()
    """Refs of the worker's commits that are not on its branch."""


def restore(
    root: Path, *, workers: tuple[int, ...] = (), run_id: str | None = None
) -> tuple[RestoredWorker, ...]:
    """Restore branches and worktrees from backups, using the newest backup of each worker.

    Args:
        root: Any directory in the repository.
        workers: Numbers of the workers. Default: all workers with a backup.
        run_id: Only workers of this run; the beginning of its id is enough.

    Raises:
        ConfigError: There is no such backup, or the worktree or branch exists already. Nothing was
            restored.
    """
    repository = Repository(root)
    chosen = _choose(repository, workers, run_id)
    with repository.lock():
        _check_free(repository, chosen)
        empty = {}
        for number, (run, ref) in chosen.items():
            spec = _spec(repository, run, number)
            repository.exclude_worktrees()
            repository.git.run("branch", "--no-track", spec.branch, ref)
            empty[number] = add_worktree(repository, spec)
    restored = []
    for number, (run, ref) in chosen.items():
        worktree = empty[number]
        check_out(repository, worktree, ref)
        kept = list_kept(repository)
        worker = RestoredWorker(
            run_id=run,
            worker_id=number,
            branch=worktree.branch,
            worktree=str(worktree.path),
            kept_refs=tuple(ref for owner, n, ref in kept if (owner, n) == (run, number)),
        )
        restored.append(worker)
    return tuple(restored)


def _choose(
    repository: Repository, workers: tuple[int, ...], run_id: str | None
) -> dict[int, tuple[str, str]]:
    wanted = run_id or ""
    runs = list(all_runs(repository.state_dir))
    others = {run.run_id for run in runs if run.other_user is not None}
    if any(run.startswith(wanted) for run in others) and wanted:
        find_run(runs, wanted)
    found = [backup for backup in list_backups(repository) if backup[0] not in others]
    backups = [backup for backup in found if backup[0].startswith(wanted)]
    if wanted and len({run for run, _, _ in backups}) > 1:
        raise ConfigError(
            f"`{run_id}` is the beginning of more than one run's id",
            key="run.ambiguous",
            hint="write more characters of the id: `orchestrator ls --all` lists the runs",
        )
    chosen = {
        number: (run, ref) for run, number, ref in backups if not workers or number in workers
    }
    missing = set(workers) - set(chosen)
    if missing or not chosen:
        numbers = ", ".join(str(number) for number in sorted(missing))
        what = f"worker {numbers}" if numbers else "any worker"
        kept = [ref for _, number, ref in list_kept(repository) if number in missing]
        hint = f"list all backups with `git for-each-ref {BACKUPS}`"
        if kept:
            hint = (
                "commits of the worker that were not on its branch are kept: `git branch "
                f"NAME {kept[0]}`"
            )
        raise ConfigError(f"there is no backup of {what}", key="backup.missing", hint=hint)
    return dict(sorted(chosen.items()))


def _check_free(repository: Repository, chosen: dict[int, tuple[str, str]]) -> None:
    live = {
        spec.worker_id: run.run_id
        for run in all_runs(repository.state_dir)
        if run.is_live() and (record := read_outline(run)) is not None
        for spec in record.workers
    }
    taken = [number for number in chosen if number in live]
    if taken:
        raise ConfigError(
            f"worker {taken[0]} belongs to run {live[taken[0]]}, which is live",
            key="worker.live",
            hint="restore the worker after that run has ended and was cleaned up",
        )
    owned = owners(repository)
    refs = worker_refs(repository)
    ways: dict[int, list[str]] = {}
    for number, (run_id, _) in chosen.items():
        spec, ways[number] = _spec(repository, run_id, number), []
        if (repository.top / spec.directory).exists():
            ways[number].append(f"{repository.top / spec.directory} exists already")
        if repository.commit_of(spec.ref):
            ways[number].append(f"the branch `{spec.branch}` exists already")
        if not ways[number] and number in owned and owned[number].is_present(refs):
            run = owned[number].directory.run_id
            ways[number].append(f"worker {number} of run {run} still exists")
    problems = [problem for number in chosen for problem in ways[number]]
    # protection: restore-overwrites-nothing
    if problems:
        numbers = " ".join(str(number) for number, found in ways.items() if found)
        raise ConfigError(
            "; ".join(problems),
            key="restore.blocked",
            hint=f"clean up first: `orchestrator parallel-cleanup {numbers}`",
        )


def _spec(repository: Repository, run_id: str, number: int) -> WorkerSpec:
    """Return a worker's specification as its run recorded it, not as configured today."""
    for run in all_runs(repository.state_dir):
        record = read_outline(run) if run.run_id == run_id else None
        for spec in record.workers if record else ():
            if spec.worker_id == number:
                return spec
    return WorkerSpec(worker_id=number, task="", model=None)
