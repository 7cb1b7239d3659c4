"""Keep work that would be lost as commits under `refs/orchestrator/backup/`, and bring it back.

The ref of worker N of a run is `<run>/<N>`; after a restore, the next is `<run>.2/<N>`.
"""

from itertools import count

from orchestrator.cleanup.inventory import RecordedWorker, commit_of, head_of, is_reached
from orchestrator.git.repository import ATTEMPTS, BACKUPS, Repository, worker_refs
from orchestrator.git.snapshot import snapshot

_EVERYWHERE = ("refs/heads", "refs/remotes", "refs/tags")


def work_to_keep(repository: Repository, worker: RecordedWorker, tip: str | None) -> str | None:
    """Return the commit that holds what would be lost, or None when all of it is merged.

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
    """Return every backup's run, worker number and ref, the oldest first."""
    found = worker_refs(repository.git, BACKUPS, "--sort=committerdate")
    return [(run_id.partition(".")[0], number, ref) for run_id, number, ref in found]


def list_attempts(repository: Repository) -> list[tuple[str, int, str]]:
    """Return the run, worker number and ref of all work of attempts that were given up."""
    return worker_refs(repository.git, ATTEMPTS)
