"""Remove directory trees written by a worker: any depth, any mode, without following links."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

_NEAR = 4
"""Depth down to which directories are emptied in place. Deeper directories are moved up first,
which costs two more writes each.
"""


def remove_tree(path: Path) -> None:
    """Remove a directory tree that a worker may have made hard to remove; follow no links.

    Deeply nested directories are first moved up, so that any depth can be removed. Entries that
    cannot be removed are left for the next cleanup.
    """
    # protection: removal-does-not-start-at-link
    if path.is_symlink():
        path.unlink()
        return
    spare = (path / f"{secrets.token_hex(8)}-{number}" for number in count())
    stuck: set[str] = set()
    _unlock(path)
    while names := entry_names(path) - stuck:
        stuck |= {name for name in names if not _remove_entry(path / name, spare)}
    _remove_empty(path)


def entry_names(directory: Path) -> set[str]:
    """Return the names in a directory; an empty set if the directory cannot be read."""
    try:
        return set(os.listdir(directory))  # noqa: PTH208  # only names are needed
    except OSError:
        return set()


def _remove_entry(entry: Path, spare: Iterator[Path], near: int = _NEAR) -> bool:
    try:
        # protection: removal-does-not-follow-links
        if not stat.S_ISDIR(entry.lstat().st_mode):
            entry.unlink()
        # The work directory of an overlay belongs to root and cannot be read, but is empty.
        elif not _remove_empty(entry):
            _unlock(entry)
            with os.scandir(entry) as children:
                for child in children:
                    path = Path(child.path)
                    # protection: removal-does-not-follow-links-below-top
                    if not child.is_dir(follow_symlinks=False):
                        path.unlink()
                    elif near:
                        _remove_entry(path, spare, near - 1)
                    elif not _remove_empty(path):
                        _unlock(path)  # moving a directory requires write permission on itself
                        # protection: removal-at-any-depth
                        path.rename(next(spare))
            entry.rmdir()
    except OSError:
        return False
    return True


def _unlock(directory: Path) -> None:
    with suppress(OSError):
        # Changing a mode writes to the disk, even if the mode stays the same.
        if directory.lstat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
            # protection: locked-directories-are-removed
            directory.chmod(0o700)


def _remove_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True
