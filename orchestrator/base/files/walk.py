"""Walk a directory tree that a hostile process may be changing, without ever leaving the tree.

Every directory is opened by descriptor relative to its parent, and no link is followed: a worker
that replaces a directory by a link to `/` cannot redirect the walk. Other file systems are not
entered. A walk is bounded in entries and time.
"""

import math
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

# protection: walks-do-not-follow-links
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = 16
"""Number of nested directories that stay open; deeper ones are opened and closed again."""
_GLANCE = 64
"""Number of entries between two checks of the time limit."""


class Walk:
    """One walk over a directory tree, whose attributes report at the end if it was complete."""

    def __init__(self, root: Path | int, *, most: int, until: float = math.inf) -> None:
        """Prepare a walk.

        Args:
            root: Top of the tree, as a path or a descriptor; if it is a link, it is not followed.
            most: Number of entries after which the walk ends.
            until: Time at which the walk ends, on the clock `time.monotonic`.
        """
        self.seen = 0
        """Number of entries so far."""
        self.hidden = 0
        """Number of directories that could not be read: without permission, replaced during the
        walk, or on another file system."""
        self.late = False
        """Whether the walk ended because the time was over."""
        self._root = root
        self._most = most
        self._until = until

    def __iter__(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the path of each entry, relative to the root, and its `lstat` result."""
        try:
            folders = Folders(self._root)
        except FileNotFoundError:
            return
        except OSError:
            self.hidden += 1
            return
        try:
            yield from self._entries_below(folders, os.fstat(folders.open("")).st_dev)
        finally:
            folders.close()

    def _entries_below(
        self, folders: "Folders", device: int
    ) -> Iterator[tuple[str, os.stat_result]]:
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
                for path, info in self._entries_of(folder, entries):
                    # protection: walks-do-not-enter-other-file-systems
                    if stat.S_ISDIR(info.st_mode) and info.st_dev == device:
                        pending.append(path)
                    elif stat.S_ISDIR(info.st_mode):
                        self.hidden += 1
                    yield path, info

    def _entries_of(
        self, folder: str, entries: Iterator["os.DirEntry[str]"]
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the entries of one directory; entries that disappear meanwhile are left out."""
        prefix = f"{folder}/" if folder else ""
        while True:
            try:
                entry = next(entries, None)
                # protection: walks-use-lstat
                info = entry.stat(follow_symlinks=False) if entry else None
            # protection: vanished-entries-do-not-end-walk
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
        # protection: walks-have-timeout
        self.late = self.late or time.monotonic() >= self._until
        return self.late or self.seen >= self._most


class Folders:
    """Opens nested directories of a tree; the directories on the last opened path stay open."""

    def __init__(self, top: Path | int) -> None:
        """Open the top directory of the tree, given by its path or by a descriptor.

        Raises:
            OSError: The directory does not exist, is a file, or cannot be read.
        """
        self._names: list[str] = []
        if isinstance(top, int):
            self._kept = [os.open(".", _DIRECTORY, dir_fd=top)]
        else:
            self._kept = [os.open(top, _DIRECTORY)]
        """Descriptors of the top and of the first directories of the last path."""
        self._last: int | None = None
        """Descriptor of the last path's directory, if it is too deep for `_kept`."""

    def open(self, path: str) -> int:
        """Open a directory and return its descriptor, which is valid until the next call.

        Raises:
            OSError: A part of the path does not exist, is not a directory, or cannot be read.
        """
        names = path.split("/") if path else []
        common = 0
        for kept, name in zip(self._names, names, strict=False):
            if kept != name:
                break
            common += 1
        self._shorten(common)
        for name in names[common:]:
            # protection: walks-open-directories-by-descriptor
            below = os.open(name, _DIRECTORY, dir_fd=self._end())
            # protection: number-of-open-descriptors-of-walk-limited
            if len(self._kept) <= _OPEN:
                self._kept.append(below)
                self._names.append(name)
            else:
                self._close_last()
                self._last = below
        return self._end()

    def _end(self) -> int:
        return self._kept[-1] if self._last is None else self._last

    def _close_last(self) -> None:
        if self._last is not None:
            os.close(self._last)
            self._last = None

    def _shorten(self, length: int) -> None:
        self._close_last()
        del self._names[length:]
        while len(self._kept) > length + 1:
            os.close(self._kept.pop())

    def close(self) -> None:
        """Close all open directories."""
        self._shorten(0)
        os.close(self._kept.pop())
