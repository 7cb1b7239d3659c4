"""Directories in a repository's state that only one user may enter, each with a lock."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.base.errors import RepositoryError


@contextmanager
def private_place(place: Path, *, again: str, git_keeps_lock: bool = False) -> Iterator[Path]:
    """Create a directory that only the caller may enter, unless it exists, and hold its lock.

    Args:
        place: The directory: a path that `own_place` returned.
        again: What the next run does if the directory is removed, for the hint of the error.
        git_keeps_lock: Whether the lock of a killed process is held until the last git command that
            it started meanwhile has ended.

    Raises:
        RepositoryError: Others may enter the directory, so that its files cannot be trusted.
    """
    refused = RepositoryError(
        f"{place} must be a directory that belongs to you and that only you can enter",
        key="directory.not-private",
        hint=f"remove it: the next run {again}",
    )
    with suppress(FileExistsError):
        place.mkdir(mode=0o700, parents=True)
    try:
        # protection: link-in-place-of-shared-checkouts-is-not-followed
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError as error:
        raise refused from error
    try:
        info = os.fstat(folder)
        # protection: shared-checkouts-are-private-to-caller
        if info.st_uid != os.getuid() or info.st_mode & 0o077:
            raise refused
        # protection: link-at-lock-of-checkouts-is-not-followed
        lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock, git_keeps_lock)
        yield place
    finally:
        os.close(lock)
