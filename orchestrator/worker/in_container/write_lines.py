"""Write lines of ours into an untracked file of a worker's tree, such as `.env`.

No link is followed, because the worker may have created it. The program runs on this machine or in
a container, so only the standard library is used.
"""

import errno
import os
import re
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_BEGIN = "# Ports and services of this worker alone, by orchestrator; never committed."
_END = "# Until here."
_OURS = re.compile(f"^{re.escape(_BEGIN)}\n.*?^{re.escape(_END)}\n", re.DOTALL | re.MULTILINE)
_MOST = 1024**2
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MODE = 0o644
IN_THE_WAY = 2
"""Exit code of the program if the file cannot be written because of another one."""
_OTHERS = frozenset({errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOTDIR})


class InTheWayError(Exception):
    """A directory or a link has the path of the file, or is on its path."""


def write_lines(trees: Sequence[Path], path: str, lines: str, owner: tuple[int, int]) -> None:
    """Write lines into a file, in place of those of an earlier call; other lines stay above them.

    Args:
        trees: The directory that receives the file, and others where the worker sees what is not
            in the first one.
        path: Path of the file in the directory.
        lines: The lines.
        owner: User and group of the file.

    Raises:
        InTheWayError: The file cannot be written because of another one.
        OSError: The disk is full.
    """
    file = _File(trees, path, owner)
    try:
        before = _OURS.sub("", file.read())
        end = "\n" if before and not before.endswith("\n") else ""
        text = f"{before}{end}{_BEGIN}\n{lines}{_END}\n"
        file.replace(text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        if error.errno in _OTHERS:
            raise InTheWayError from error
        raise


def main(tree: str, path: str, lines: str) -> None:
    """Write lines into a file of a tree, as its owner; exit with `IN_THE_WAY` if it cannot."""
    try:
        write_lines([Path(tree)], path, lines, (os.getuid(), os.getgid()))
    except InTheWayError:
        sys.exit(IN_THE_WAY)


class _File:
    """A file in a worker's tree."""

    def __init__(self, trees: Sequence[Path], path: str, owner: tuple[int, int]) -> None:
        self._trees = trees
        *self._folders, self._name = path.split("/")
        self._owner = owner

    def read(self) -> str:
        """Return the text that the worker sees in the file; empty if there is no regular file."""
        for tree in self._trees:
            with suppress(FileNotFoundError):
                return self._read(tree)
        return ""

    def _read(self, tree: Path) -> str:
        folder = self._open(tree, make=False)
        try:
            if not stat.S_ISREG(os.stat(self._name, dir_fd=folder, follow_symlinks=False).st_mode):
                return ""
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self._name, flags, dir_fd=folder), "rb") as file:
                return file.read(_MOST).decode("utf-8", "surrogateescape")
        finally:
            os.close(folder)

    def replace(self, content: bytes) -> None:
        """Replace the file by a new file that belongs to the worker."""
        folder = self._open(self._trees[0], make=True)
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._name, dir_fd=folder)
            made = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE, dir_fd=folder)
            with open(made, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), _MODE)
                self._give_away(file.fileno())
        finally:
            os.close(folder)

    def _open(self, tree: Path, *, make: bool) -> int:
        """Open the directory that contains the file, and return its descriptor."""
        descriptor = os.open(tree, _FOLDER)
        for part in self._folders:
            try:
                made = make and self._make(part, descriptor)
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
            if made:
                self._give_away(inner)
        return descriptor

    def _make(self, part: str, folder: int) -> bool:
        try:
            os.mkdir(part, 0o755, dir_fd=folder)
        except FileExistsError:
            return False
        return True

    def _give_away(self, descriptor: int) -> None:
        if self._owner[0] != os.getuid():
            os.fchown(descriptor, *self._owner)
