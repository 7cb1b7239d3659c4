"""Back up a worker's unmerged work as commits under `refs/orchestrator/backup/`.

The ref of worker N of a run is `<run>/<N>`; the next backup after a restore is `<run>.2/<N>`.
"""

from itertools import count

from orchestrator.repository.checkouts.snapshot import NewCommit, Tree, snapshot
from orchestrator.repository.repository import ATTEMPTS, BACKUPS, Repository, worker_refs
from orchestrator.runs.cleanup.inventory import RecordedWorker, head_of, is_reached

_EVERYWHERE = ("refs/heads", "refs/remotes", "refs/tags")


def work_to_keep(repository: Repository, worker: RecordedWorker, tip: str | None) -> str | None:
    """Return a commit with all unmerged work of a worker; None if there is no such work.

    Args:
        repository: The repository.
        worker: The worker.
        tip: The commit of the worker's branch.
    """
    worktree = worker.worktree()
    if worktree is None or worker.is_half_shown(worktree):
        kept = tip
    else:
        tree = Tree(
            git_dir=worktree.git_dir,
            path=worktree.path,
            scratch=worker.directory.path / f"index-{worker.number}",
            config=repository.comparing(),
        )
        commit = NewCommit(
            parent=head_of(repository, worktree) or worker.base,
            message=f"architect: uncommitted changes in {worker.spec.directory}",
            identity=repository.identity(),
        )
        kept = snapshot(tree, commit, without=worker.copies())
    if kept is None or not worker.has_made(kept):
        return None
    if is_reached(repository, kept, *_EVERYWHERE):
        return None
    return kept


def backup_ref(repository: Repository, worker: RecordedWorker, commit: str) -> str:
    """Return the ref for a backup: an unused ref, or a ref at an ancestor of `commit`."""
    for round_number in count(1):
        suffix = "" if round_number == 1 else f".{round_number}"
        ref = f"{BACKUPS}{worker.directory.run_id}{suffix}/{worker.number}"
        held = repository.commit_of(ref)
        # protection: backups-are-not-overwritten
        if held is None or repository.git.succeeds("merge-base", "--is-ancestor", held, commit):
            return ref
    raise AssertionError("unreachable")


def list_backups(repository: Repository) -> list[tuple[str, int, str]]:
    """Return every backup as (run, worker, ref), oldest first."""
    found = worker_refs(repository.git, BACKUPS, "--sort=committerdate")
    return [(run_id.partition(".")[0], number, ref) for run_id, number, ref in found]


def list_attempts(repository: Repository) -> list[tuple[str, int, str]]:
    """Return the refs that keep the work of failed attempts, as (run, worker, ref)."""
    return worker_refs(repository.git, ATTEMPTS)
