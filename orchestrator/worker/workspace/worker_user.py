"""The user and group that own a worker's processes and files on the host."""

import os

from orchestrator.worker.workspace.layout import Mode

_OWN_USERS = 20_000
"""Number that is added to a worker's number to get its user id; ordinary systems do not use such
ids.
"""


def worker_user(worker_id: int) -> tuple[int, int]:
    """Return user and group of a worker: the caller's own, or, for root, one user per worker."""
    # protection: worker-is-never-root
    if os.getuid() == 0:
        return _OWN_USERS + worker_id, _OWN_USERS + worker_id
    return os.getuid(), os.getgid()


def shared_user() -> tuple[int, int]:
    """Return user and group of all workers that share a checkout: its files have one owner."""
    return worker_user(0)


def process_user(worker_id: int, mode: Mode, *, shared: bool) -> tuple[int, int]:
    """Return the user and group with which a worker's processes run.

    Args:
        worker_id: The worker's number.
        mode: How the container gets the worker's files.
        shared: Whether the run has shared checkouts instead of worktrees.
    """
    return shared_user() if shared and mode == "overlay" else worker_user(worker_id)


def tree_owner(worker_id: int, mode: Mode) -> tuple[int, int] | None:
    """Return the user and group of a worker's worktree during the run; None for the caller's."""
    user = worker_user(worker_id)
    # The owner of a file in the lower layer is also the owner of its changed copy.
    return user if mode == "overlay" and user[0] != os.getuid() else None
