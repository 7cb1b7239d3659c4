"""The results of checks that judgements keep, so that no check runs twice on the same files."""

from pathlib import Path

from orchestrator.files.lock_file import take_lock
from orchestrator.files.remove_tree import remove_tree

JUDGED = "judged"
"""Directory with a file for each result, in the state directory."""
LOCK = "judging.lock"
"""Name of the lock that a judgement holds, in the state directory."""


def drop_results(state_dir: Path, *, dry_run: bool = False) -> int:
    """Remove the kept results of checks, and return their number; 0 while a judgement runs.

    Args:
        state_dir: The repository's state directory.
        dry_run: Only return the number.
    """
    place = state_dir / JUDGED
    found = len([*place.iterdir()]) if place.is_dir() else 0
    if not found or dry_run:
        return found
    lock = take_lock(state_dir / LOCK)
    if lock is None:
        return 0
    with lock:
        remove_tree(place)
    return found
