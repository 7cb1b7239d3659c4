"""The user that a worker's processes and files belong to on the host."""

import os

_OWN_USERS = 20_000
"""Added to the worker's number to get its user id; ordinary systems do not use such ids."""


def worker_user(worker_id: int) -> tuple[int, int]:
    """Return uid and gid of a worker: those of the caller, or for root a separate user."""
    if os.getuid() == 0:
        return _OWN_USERS + worker_id, _OWN_USERS + worker_id
    return os.getuid(), os.getgid()
