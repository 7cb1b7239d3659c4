"""Read what a worker wrote, if it consists of a few ordinary files.

Such files can be committed without a container, because the host only copies their bytes. If
anything needs to be interpreted (links, deletions, git's own files, unusual names, many or large
files), the result is None.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from orchestrator.base.files.safe_open import open_regular
from orchestrator.repository.commits.plain_commit import PlainFile, PlainFiles

MOST_ENTRIES = 200
"""Maximum number of files and directories that are read."""
MOST_BYTES = 1024**2
"""Maximum total size of the files in bytes."""
_DEEPEST = 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@=-]{0,99}")
"""Pattern of names that every file system and every version of git takes literally; none begins
with a dot.
"""
_OF_GIT_DIRECTORIES = frozenset({"head", "objects", "refs", "commondir"})
"""Names, in lower case, by which git recognises a directory as a repository."""
_HARMLESS = frozenset({"trusted.overlay.origin", "trusted.overlay.impure"})
"""Names of file attributes by which the kernel marks an overlay's files, but which do not change a
file's meaning.
"""
_NEW = frozenset({"trusted.overlay.opaque"})
"""Names of file attributes that have no effect on a path that the overlay's lower layer lacks.
"""


class _NotPlainError(Exception):
    """An entry of a directory is not an ordinary file."""


def read_plain_files(upper: Path, lower: Path) -> PlainFiles | None:
    """Return the files in an overlay's upper layer; None if any entry is not an ordinary file.

    Args:
        upper: The upper layer. Nothing writes to it any more.
        lower: The lower layer.
    """
    reader = _Reader(lower)
    try:
        with _opened(str(upper), None) as top:
            reader.read(top, "")
    except (OSError, _NotPlainError):
        return None
    return PlainFiles(tuple(reader.files), tuple(reader.folders))


@contextmanager
def _opened(name: str, folder: int | None) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass
class _Reader:
    """Collects the files in an overlay's upper layer."""

    lower: Path
    files: list[PlainFile] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    _entries: int = 0
    _room: int = MOST_BYTES

    def read(self, folder: int, inside: str) -> None:
        """Collect the files of a directory and of all its subdirectories.

        Raises:
            _NotPlainError: An entry is not ordinary.
            OSError: An entry cannot be read.
        """
        # protection: plain-depth-limited
        if inside.count("/") >= _DEEPEST:
            raise _NotPlainError
        for name in self._names(folder):
            path = f"{inside}{name}"
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                with _opened(name, folder) as inner:
                    self._check_layer(inner, path)
                    self.folders.append(path)
                    self.read(inner, f"{path}/")
            elif stat.S_ISREG(info.st_mode):
                self.files.append(self._file(folder, name, path))
            else:
                raise _NotPlainError

    def _names(self, folder: int) -> list[str]:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES + 1)]
        self._entries += len(names)
        # protection: plain-only-names-that-git-takes-literally
        # protection: plain-no-disguised-git-directory
        usual = all(_NAME.fullmatch(n) and n.lower() not in _OF_GIT_DIRECTORIES for n in names)
        # protection: plain-number-of-entries-limited
        if self._entries > MOST_ENTRIES or not usual:
            raise _NotPlainError
        return sorted(names)

    def _file(self, folder: int, name: str, path: str) -> PlainFile:
        with open_regular(name, folder=folder) as file:
            info = os.fstat(file.fileno())
            # protection: plain-size-limited
            # protection: plain-hard-links-refused
            if info.st_nlink != 1 or info.st_size > self._room:
                raise _NotPlainError
            self._check_layer(file.fileno(), path)
            content = file.read(self._room + 1)
        if len(content) != info.st_size:
            raise _NotPlainError
        self._room -= len(content)
        return PlainFile(path, bool(info.st_mode & stat.S_IXUSR), content)

    def _check_layer(self, descriptor: int, path: str) -> None:
        """Check that an entry looks the same in the upper layer and in the mounted overlay.

        With attributes that only root can read, the kernel marks some entries of the upper layer:
        a directory that hides the lower layer's directory of its name or stands for a directory of
        another name, and a file whose content is still in the lower layer. Moving an entry of the
        lower layer leaves another entry in its place. So a caller who cannot read these attributes
        refuses every entry whose path exists in the lower layer.

        Raises:
            _NotPlainError: The entry is marked, or the marks cannot be read.
        """
        covers = os.path.lexists(self.lower / path)
        # protection: plain-unreadable-overlay-attributes-refused
        if os.getuid() != 0:
            if covers:
                raise _NotPlainError
            return
        marks = {name for name in os.listxattr(descriptor) if ".overlay." in name}
        # The kernel marks every new directory as one that hides the directory below it.
        # protection: plain-entries-with-overlay-attributes-refused
        # protection: plain-moved-entries-refused
        if marks - _HARMLESS - (frozenset() if covers else _NEW):
            raise _NotPlainError
