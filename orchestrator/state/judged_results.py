"""The stored results of checks, so that judgements do not repeat a check on the same files."""

from orchestrator.files.lock_file import take_lock
from orchestrator.files.owner import own_place
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.repository import Repository

JUDGED = "judged"
"""Name of the directory, in the state directory, with a file for each result of a check."""
LOCK = "judging.lock"
"""Name of the lock file, in the state directory, that a judgement locks while it runs."""


def drop_results(repository: Repository, *, dry_run: bool = False) -> int:
    """Remove the stored results of checks, unless a judgement runs; return the number removed.

    Args:
        repository: The repository.
        dry_run: Only return the number.
    """
    place = own_place(repository.state_dir, JUDGED)
    found = len([*place.iterdir()]) if place.is_dir() else 0
    if not found or dry_run:
        return found
    lock = take_lock(repository.state_dir / LOCK)
    if lock is None:
        return 0
    with lock:
        remove_tree(place)
    return found
