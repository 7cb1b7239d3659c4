"""Walk a tree that a hostile process may be changing at this moment, and never leave it.

Every directory is opened below the one that holds it, by descriptor, and no link is followed: a
worker that swaps a directory for a link to `/` is not followed there. No other file system is
entered. A walk ends after a number of entries and at a moment in time, whatever the tree holds.
"""

import math
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = 16
"""Directories of one path that stay open; what lies deeper is opened from there again."""
_GLANCE = 64
"""Entries between two looks at the clock."""


class Walk:
    """One walk over a tree; iterate it once, then read how complete it was."""

    def __init__(self, root: Path, *, most: int, until: float = math.inf) -> None:
        """Prepare a walk.

        Args:
            root: The top of the tree; a link in its place is not followed.
            most: Entries after which the walk ends.
            until: The moment, by `time.monotonic`, at which the walk ends.
        """
        self.seen = 0
        """Entries so far."""
        self.hidden = 0
        """Directories that could not be read: locked, swapped for something else meanwhile, or on
        another file system."""
        self.late = False
        """Whether the time was over before the end of the tree."""
        self._root = root
        self._most = most
        self._until = until

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield each entry's path below the root and what `lstat` says of it."""
        try:
            top = os.open(self._root, _DIRECTORY)
        except FileNotFoundError:
            return
        except OSError:
            self.hidden += 1
            return
        folders = _Folders(top)
        try:
            yield from self._below(folders, os.fstat(top).st_dev)
        finally:
            folders.close()

    def _below(self, folders: "_Folders", device: int) -> Iterator[tuple[str, os.stat_result]]:
        pending = [""]
        while pending and not self._is_over():
            folder = pending.pop()
            try:
                entries = os.scandir(folders.open(folder))
            except FileNotFoundError:
                continue
            except OSError:
                self.hidden += 1
                continue
            with entries:
                for path, info in self._listed(folder, entries):
                    if stat.S_ISDIR(info.st_mode) and info.st_dev == device:
                        pending.append(path)
                    elif stat.S_ISDIR(info.st_mode):
                        self.hidden += 1
                    yield path, info

    def _listed(
        self, folder: str, entries: Iterator["os.DirEntry[str]"]
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the entries of one directory that are still there."""
        prefix = f"{folder}/" if folder else ""
        while True:
            try:
                entry = next(entries, None)
                info = entry.stat(follow_symlinks=False) if entry else None
            except FileNotFoundError:
                continue
            except OSError:
                self.hidden += 1
                return
            if entry is None or info is None:
                return
            self.seen += 1
            yield f"{prefix}{entry.name}", info
            if self.seen >= self._most or (self.seen % _GLANCE == 0 and self._is_over()):
                return

    def _is_over(self) -> bool:
        self.late = self.late or time.monotonic() >= self._until
        return self.late or self.seen >= self._most


class _Folders:
    """Directories of a tree, each opened below its parent; the last path stays open."""

    def __init__(self, top: int) -> None:
        self._names: list[str] = []
        self._kept = [top]
        """The top and the first directories of the last path."""
        self._last: int | None = None
        """The end of the last path, where that lies deeper."""

    def open(self, path: str) -> int:
        """Open a directory and return its descriptor, which is valid until the next call.

        Raises:
            OSError: A part of the path is gone, is no directory, or cannot be read.
        """
        names = path.split("/") if path else []
        common = 0
        for kept, name in zip(self._names, names, strict=False):
            if kept != name:
                break
            common += 1
        self._shorten(common)
        for name in names[common:]:
            below = os.open(name, _DIRECTORY, dir_fd=self._end())
            if len(self._kept) <= _OPEN:
                self._kept.append(below)
                self._names.append(name)
            else:
                self._let_go()
                self._last = below
        return self._end()

    def _end(self) -> int:
        return self._kept[-1] if self._last is None else self._last

    def _let_go(self) -> None:
        if self._last is not None:
            os.close(self._last)
            self._last = None

    def _shorten(self, length: int) -> None:
        self._let_go()
        del self._names[length:]
        while len(self._kept) > length + 1:
            os.close(self._kept.pop())

    def close(self) -> None:
        """Close all of them."""
        self._shorten(0)
        os.close(self._kept.pop())
