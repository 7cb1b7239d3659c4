"""The user and group that own a worker's processes and files on the host."""

import os

_OWN_USERS = 20_000
"""Number that is added to a worker's number to get its user id; ordinary systems do not use such
ids.
"""


def worker_user(worker_id: int) -> tuple[int, int]:
    """Return user and group of a worker: the caller's own, or, for root, one user per worker."""
    if os.getuid() == 0:
        return _OWN_USERS + worker_id, _OWN_USERS + worker_id
    return os.getuid(), os.getgid()
