"""Copy untracked files of the user into a worker's tree, and record their size and time.

No link is followed. The record `copied.json` is in the worker's state directory: a copy that still
has the recorded size and time is not the worker's work.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from orchestrator.base.files.copy_bytes import copy_bytes

RECORD = "copied.json"
# protection: copies-do-not-follow-links
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_RULES = 5000
"""Maximum number of exclude patterns, because git tries each of them for every file."""


def copy_in(
    paths: Iterable[str], source: Path, target: Path, *, tracked: Callable[[], Collection[str]]
) -> frozenset[str]:
    """Copy files into a tree, except files that the tree already has; tracked files do not change.

    Args:
        paths: Sorted paths, relative to both directories.
        source: The user's checkout.
        target: The tree.
        tracked: Returns the tracked files; only called if a file exists already.

    Returns:
        The given paths that now exist in the tree and are not tracked.

    Raises:
        OSError: The disk is full.
    """
    there: set[str] = set()
    for folder, names in groupby(paths, key=lambda path: path.rpartition("/")[0]):
        with _folders(folder, source, target) as (origin, place):
            if origin is None or place is None:
                continue
            for path in names:
                made = _copy_one(path.rpartition("/")[2], origin, place)
                if made or (made is False and path not in tracked()):
                    there.add(path)
    return frozenset(there)


@contextmanager
def _folders(folder: str, source: Path, target: Path) -> Iterator[tuple[int | None, int | None]]:
    origin = _open_folder(source, folder, make=False)
    place = None if origin is None else _open_folder(target, folder, make=True)
    try:
        yield origin, place
    finally:
        for descriptor in (origin, place):
            if descriptor is not None:
                os.close(descriptor)


def _open_folder(top: Path, folder: str, *, make: bool) -> int | None:
    """Open a directory below `top`; return None if it is missing or its path contains a link."""
    descriptor = os.open(top, _FOLDER)
    try:
        for part in folder.split("/") if folder else ():
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise
    return descriptor


def _copy_one(name: str, source: int, target: int) -> bool | None:
    """Copy a file or link; return False if the target exists, None if the source does not."""
    try:
        info = os.stat(name, dir_fd=source, follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISREG(info.st_mode):
            _copy_file(name, source, target)
        else:
            return None
    except FileNotFoundError:
        return None
    except FileExistsError:
        return False
    return True


def _copy_file(name: str, source: int, target: int) -> None:
    given = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source)
    with open(given, "rb") as a:
        info = os.fstat(a.fileno())
        mode = stat.S_IMODE(info.st_mode) & 0o777
        made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=target)
        with open(made, "wb", buffering=0) as b:
            copy_bytes(a.fileno(), b.fileno())
            os.utime(b.fileno(), ns=(info.st_atime_ns, info.st_mtime_ns))


def write_record(paths: Iterable[str], tree: Path, *directories: Path) -> None:
    """Record size and time of the copies in `tree` in a file in each of `directories`."""
    text = json.dumps({path: _stamp(tree / path) for path in paths})
    for directory in directories:
        (directory / RECORD).write_text(text)


def unchanged(directory: Path, tree: Path) -> frozenset[str]:
    """Return the copies in a tree that have not changed since they were made."""
    try:
        stamps = json.loads((directory / RECORD).read_text())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(path for path, stamp in stamps.items() if _stamp(tree / path) == stamp)


def _stamp(path: Path) -> list[int]:
    try:
        info = path.lstat()
    except OSError:
        return []
    return [info.st_size, info.st_mtime_ns]


def rules(copied: Collection[str], ignored: Iterable[str]) -> tuple[str, ...]:
    """Return exclude patterns for git that match the copies and few other files."""
    if not copied:
        return ()
    folders = tuple(ignored)
    single = [path for path in copied if not path.startswith(folders)]
    paths = (*folders, *single[:_MOST_RULES])
    return tuple(f"/{_escaped(path)}" for path in paths if "\n" not in path)


def _escaped(path: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "\\*?[" else letter for letter in path)
    # Git ignores a space at the end of a line unless it is escaped.
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") else escaped
