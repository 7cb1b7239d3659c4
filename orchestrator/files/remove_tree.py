"""Remove a directory tree that a worker wrote: any depth, any mode, no link followed."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

_NEAR = 4
"""Directories inside each other that are emptied where they are: to move one is two more writes."""


def remove_tree(path: Path) -> None:
    """Remove a directory that a worker may have made hard to remove; follows no link.

    Directories far inside others move up before they are emptied, so that no depth is too much.
    What cannot be removed is left: the next clean-up meets it again.
    """
    if path.is_symlink():
        path.unlink()
        return
    spare = (path / f"{secrets.token_hex(8)}-{number}" for number in count())
    stuck: set[str] = set()
    _unlock(path)
    while names := _names(path) - stuck:
        stuck |= {name for name in names if not _removed(path / name, spare)}
    _remove_empty(path)


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))  # noqa: PTH208  # names alone
    except OSError:
        return set()


def _removed(entry: Path, spare: Iterator[Path], near: int = _NEAR) -> bool:
    try:
        if not stat.S_ISDIR(entry.lstat().st_mode):
            entry.unlink()
        # An overlay's scratch belongs to root and cannot be read, but it is empty.
        elif not _remove_empty(entry):
            _unlock(entry)
            _empty(entry, spare, near)
            entry.rmdir()
    except OSError:
        return False
    return True


def _empty(directory: Path, spare: Iterator[Path], near: int) -> None:
    with os.scandir(directory) as children:
        for child in children:
            path = Path(child.path)
            if not child.is_dir(follow_symlinks=False):
                path.unlink()
            elif near:
                _removed(path, spare, near - 1)
            elif not _remove_empty(path):
                _unlock(path)  # a directory that moves must be writable itself
                path.rename(next(spare))


def _unlock(directory: Path) -> None:
    with suppress(OSError):
        # A mode that is set is written to the disk, also where it is what it was.
        if directory.lstat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
            directory.chmod(0o700)


def _remove_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True
