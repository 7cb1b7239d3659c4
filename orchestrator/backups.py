"""Keep work that would be lost as commits under `refs/orchestrator/backup/`, and bring it back.

The ref of worker N of a run is `<run>/<N>`; after a restore, the next is `<run>.2/<N>`.
"""

from itertools import count
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import ConfigError
from orchestrator.kept import list_kept
from orchestrator.plan import WorkerSpec
from orchestrator.record import all_runs
from orchestrator.remains import RecordedWorker, commit_of, head_of, is_reached
from orchestrator.repository import ATTEMPTS, BACKUPS, Repository, snapshot
from orchestrator.worktree import add_worktree

_EVERYWHERE = ("refs/heads", "refs/remotes", "refs/tags")


class RestoredWorker(BaseModel):
    """A worker whose branch and worktree are back."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    worker_id: int
    branch: str
    worktree: str
    kept_refs: tuple[str, ...] = ()
    """Refs that keep what else the worker left."""


def work_to_keep(repository: Repository, worker: RecordedWorker, tip: str | None) -> str | None:
    """Give the commit that holds what would be lost, or None when all of it is merged.

    Args:
        repository: The repository.
        worker: The worker.
        tip: What its branch points at.
    """
    worktree = worker.worktree()
    kept = tip
    if worktree is not None:
        kept = snapshot(
            worktree.git_dir,
            worktree.path,
            parent=head_of(repository, worktree) or worker.base,
            message=f"architect: what was not committed in {worker.spec.directory}",
            scratch=worker.directory.path / f"index-{worker.number}",
            identity=repository.identity(),
            config=repository.without_filters(),
            without=worker.copies(),
        )
    if kept is None or not worker.has_made(kept):
        return None
    if is_reached(repository, kept, *_EVERYWHERE):
        return None
    return kept


def backup_ref(repository: Repository, worker: RecordedWorker, commit: str) -> str:
    """Name a ref for `commit` that holds nothing which `commit` does not reach."""
    for round_number in count(1):
        suffix = "" if round_number == 1 else f".{round_number}"
        ref = f"{BACKUPS}{worker.directory.run_id}{suffix}/{worker.number}"
        held = commit_of(repository, ref)
        if held is None or repository.git.succeeds("merge-base", "--is-ancestor", held, commit):
            return ref
    raise AssertionError("unreachable")


def list_backups(repository: Repository) -> list[tuple[str, int, str]]:
    """Give every backup's run, worker number and ref, the oldest first."""
    listing = ("for-each-ref", "--sort=committerdate", "--format=%(refname)", BACKUPS)
    return [(*_read(ref), ref) for ref in repository.git.text(*listing).splitlines()]


def _read(ref: str) -> tuple[str, int]:
    run_id, _, number = ref.removeprefix(BACKUPS).partition("/")
    return run_id.partition(".")[0], int(number)


def list_attempts(repository: Repository) -> list[tuple[str, int, str]]:
    """Give the run, worker number and ref of all work of attempts that were given up."""
    refs = repository.git.text("for-each-ref", "--format=%(refname)", ATTEMPTS).splitlines()
    parts = ((ref.removeprefix(ATTEMPTS).split("/"), ref) for ref in refs)
    return [(run_id, int(number), ref) for (run_id, number, _), ref in parts]


def restore(
    root: Path, *, workers: tuple[int, ...] = (), run_id: str | None = None
) -> tuple[RestoredWorker, ...]:
    """Bring back branches and worktrees that a clean-up kept as backups, the newest first.

    Args:
        root: Anywhere in the repository.
        workers: Only these numbers. Default: all that have a backup.
        run_id: Only of this run; the beginning of its id is enough.

    Raises:
        ConfigError: There is no such backup, or something is in its way; nothing was restored.
    """
    repository = Repository(root)
    chosen = _choose(repository, workers, run_id)
    with repository.lock():
        _check_free(repository, chosen)
        return tuple(_restore(repository, number, *place) for number, place in chosen.items())


def _choose(
    repository: Repository, workers: tuple[int, ...], run_id: str | None
) -> dict[int, tuple[str, str]]:
    wanted = run_id or ""
    backups = [one for one in list_backups(repository) if one[0].startswith(wanted)]
    if wanted and len({run for run, _, _ in backups}) > 1:
        raise ConfigError(f"`{run_id}` is the beginning of more than one run's id")
    chosen = {
        number: (run, ref) for run, number, ref in backups if not workers or number in workers
    }
    missing = set(workers) - set(chosen)
    if missing or not chosen:
        numbers = ", ".join(str(number) for number in sorted(missing))
        what = f"worker {numbers}" if numbers else "any worker"
        kept = [ref for _, number, ref in list_kept(repository) if number in missing]
        hint = f"backups are under {BACKUPS}: `git for-each-ref {BACKUPS}`"
        if kept:
            hint = f"what it left beside its branch is kept: `git branch NAME {kept[0]}`"
        raise ConfigError(f"no backup of {what}", hint=hint)
    return dict(sorted(chosen.items()))


def _check_free(repository: Repository, chosen: dict[int, tuple[str, str]]) -> None:
    live = {
        spec.worker_id: run.run_id
        for run in all_runs(repository.state_dir)
        if run.is_live() and (record := run.record()) is not None
        for spec in record.workers
    }
    taken = [number for number in chosen if number in live]
    if taken:
        raise ConfigError(
            f"worker {taken[0]} is one of run {live[taken[0]]}, which is live",
            hint="restore it when that run has ended and is cleaned up",
        )
    ways = {number: _in_the_way(repository, number) for number in chosen}
    problems = [problem for number in chosen for problem in ways[number]]
    if problems:
        numbers = " ".join(str(number) for number, found in ways.items() if found)
        raise ConfigError(
            "; ".join(problems), hint=f"clean up first: `orchestrator parallel-cleanup {numbers}`"
        )


def _in_the_way(repository: Repository, number: int) -> list[str]:
    spec = _spec(number)
    problems = []
    if (repository.top / spec.directory).exists():
        problems.append(f"{repository.top / spec.directory} exists already")
    if commit_of(repository, f"refs/heads/{spec.branch}"):
        problems.append(f"the branch `{spec.branch}` exists already")
    return problems


def _spec(number: int) -> WorkerSpec:
    return WorkerSpec(worker_id=number, task="", model=None)


def _restore(repository: Repository, number: int, run_id: str, ref: str) -> RestoredWorker:
    spec = _spec(number)
    repository.exclude_worktrees()
    repository.git.run("branch", "--no-track", spec.branch, ref)
    worktree = add_worktree(repository, spec)
    kept = (ref for run, worker, ref in list_kept(repository) if (run, worker) == (run_id, number))
    return RestoredWorker(
        run_id=run_id,
        worker_id=number,
        branch=spec.branch,
        worktree=str(worktree.path),
        kept_refs=tuple(kept),
    )
