"""Remove what a finished run no longer needs: worktrees, branches, files of its state directory."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.base.errors import GitCommandError, OrchestratorError, RepositoryError
from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.repository.checkouts.worktree import HALF_MADE, remove_worktree
from orchestrator.repository.commits.changes import changes
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import read_outline
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.worker.workspace.artifacts import ARTIFACTS, HANDED, HANDED_HALF
from orchestrator.worker.workspace.layout import CHECKED, PROBE
from orchestrator.worker.workspace.session_files import forget_session
from orchestrator.worker.workspace.shared_files import INPUTS_PLACE
from orchestrator.worker.workspace.submodules import PATCH

_ASIDE = ("upper", "copy", "overlay", "caches", HANDED, HANDED_HALF)
_MOST_FILES = 100_000
"""Maximum number of a worker's files whose size is measured before the files are removed."""
_REFUSED = ("git", "harvest", "out", CHECKED)


def is_unfinished(workers: Sequence[RecordedWorker], present: Collection[int]) -> bool:
    """Return whether a run can be resumed: a worker with worktree or branch has no result yet.

    Args:
        workers: All workers of the run.
        present: Numbers of the workers that have a worktree or a branch.
    """
    return any(
        worker.number in present and worker.directory.result(worker.number) is None
        for worker in workers
    )


def drop_worktree(repository: Repository, worker: RecordedWorker, tip: str | None) -> None:
    """Remove a worker's worktree and branch.

    Args:
        repository: The repository, whose lock is held.
        worker: The worker.
        tip: Last commit of the branch; None if there is no branch.

    Raises:
        RepositoryError: The worktree is locked, or the branch is checked out elsewhere.
        GitCommandError: The worktree could not be removed.
    """
    try:
        remove_worktree(repository, worker.path)
    except GitCommandError as error:
        if worker.path.exists():
            raise
        if "locked working tree" in error.stderr:
            raise RepositoryError(
                f"the worktree {worker.path} is locked and its directory is gone: "
                f"`git worktree unlock {worker.path}` allows its removal",
                key="worktree.locked",
            ) from error
    if tip is None:
        return
    elsewhere = repository.git.text("for-each-ref", "--format=%(worktreepath)", worker.spec.ref)
    # protection: branch-checked-out-elsewhere-is-kept
    if elsewhere:
        raise RepositoryError(
            f"branch `{worker.spec.branch}` is checked out in {elsewhere}", key="branch.checked-out"
        )
    repository.drop_branch(worker.spec.branch, at=tip)


def conclude(repository: Repository, worker: RecordedWorker, commit: str | None) -> None:
    """Write the missing result of a worker whose run died, so that its task is never repeated.

    The worktree and the branch have been removed; `commit` is the last commit of the branch.
    """
    if worker.directory.result(worker.number) is not None:
        return
    # Imported here because it imports most of what runs a worker, and few cleanups need it.
    from orchestrator.worker.turns.result_builder import result_of_dead_run, with_attempts

    changed = None
    with suppress(OrchestratorError, OSError):
        changed = changes(repository, base=worker.base, tip=commit or worker.base)
    result = result_of_dead_run(
        worker.spec,
        path=worker.path,
        directory=worker.state,
        commit=commit,
        changes=changed,
    )
    earlier = (Checkpoints(path).attempt_result() for _, path in worker.attempts())
    worker.directory.write_result(with_attempts(result, [past for past in earlier if past]))


def drop_scratch(
    workers: Sequence[RecordedWorker], *, present: Collection[int], refused_too: Collection[int]
) -> int:
    """Remove files that a finished run's workers no longer need; records and logs are kept.

    Args:
        workers: All workers of the run, whose lease is held.
        present: Numbers of the workers that have a worktree or a branch.
        refused_too: Numbers of the workers whose work is removed even if it was refused, so that it
            exists nowhere else.

    Returns:
        Total size in bytes of the removed files of workers.
    """
    freed = 0
    if workers and not is_unfinished(workers, present):
        workers[0].directory.drop_objects()
        remove_tree(workers[0].directory.path / INPUTS_PLACE)
        remove_tree(workers[0].directory.path / PROBE)
    for worker in workers:
        if worker.number not in present:
            freed += drop_files(worker, refused_too=worker.number in refused_too)
    return freed


def drop_files(worker: RecordedWorker, *, refused_too: bool) -> int:
    """Remove files that a worker without worktree and branch no longer needs; return their size.

    Args:
        worker: The worker.
        refused_too: Whether work is removed even if it was refused.
    """
    everything = refused_too or worker.never_ran()
    places = (worker.state, *(path for _, path in worker.attempts()))
    return sum(_drop(place, refused_too=everything) for place in places)


def sole_copies(
    run: RunDirectory, refs: frozenset[str] = frozenset()
) -> Iterator[tuple[Path, str]]:
    """Yield files of a run's workers that exist nowhere else, each with a description.

    Args:
        run: The run, whose record may be unreadable.
        refs: The branches, if a cleanup follows: it recovers files of a dead run's worker that has
            one of these or a worktree.
    """
    record = read_outline(run)
    workers = [RecordedWorker(run, record, spec) for spec in record.workers] if record else []
    passed_over = {
        worker.state
        for worker in workers
        if worker.never_ran() or (refs and worker.is_stranded() and worker.is_present(refs))
    }
    for state in sorted(run.path.glob("worker-*")):
        number = state.name.removeprefix("worker-").partition(".")[0]
        way = f"orchestrator parallel-cleanup {number} --run {run.run_id} --purge"
        found = {state: "work that was not accepted"} if _has_refused_work(state) else {}
        found |= dict.fromkeys(sorted(state.glob(PATCH.format("*"))), "changes in a submodule")
        with suppress(OSError):
            found |= {state / ARTIFACTS: "artifacts"} if any((state / ARTIFACTS).iterdir()) else {}
        for path, what in found.items() if state not in passed_over else ():
            yield path, f"the only copy of {what} of worker {number}: `{way}` removes it"


def _has_refused_work(state: Path) -> bool:
    wrote = any((state / name).exists() for name in ("upper", "copy"))
    return wrote and (state / "git").exists()


def _drop(state: Path, *, refused_too: bool) -> int:
    if _has_refused_work(state) and not refused_too:
        return 0
    forget_session(state)
    written = [state / name for name in ("upper", "copy")]
    freed = disk_use(written, most_files=_MOST_FILES).size
    for name in (*_ASIDE, *_REFUSED):
        if (state / name).exists():
            remove_tree(state / name)
    if refused_too:
        remove_tree(state / ARTIFACTS)
        for patch in state.glob(PATCH.format("*")):
            patch.unlink()
        for half_made in state.parent.glob(f"{state.name}{HALF_MADE}*"):
            remove_tree(half_made)
    return freed
