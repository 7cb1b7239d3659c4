"""Read a file that another process is writing, in bounded pieces, as it grows."""

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_PIECE = 1024**2
"""Maximum number of bytes that are read at once."""
_LONGEST_LAST = 4096


class Tail:
    """Reads a growing file from its start. The file need not exist yet.

    A file that is replaced or truncated is read again from its start, after the rest of the old
    content.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rounds = 0
        """Number of times that the file was opened."""
        self._file: BinaryIO | None = None

    def read(self) -> bytes:
        """Return bytes that were written since the last call, up to a limit; empty if none."""
        piece = self._piece()
        if not piece and self._is_replaced():
            self.close()
            with suppress(OSError):
                self._file = self.path.open("rb", 0)
                self.rounds += 1
            piece = self._piece()
        return piece

    @property
    def offset(self) -> int:
        """The offset in the file up to which it was read."""
        return self._file.tell() if self._file is not None else 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _piece(self) -> bytes:
        return self._file.read(_PIECE) if self._file is not None else b""

    def _is_replaced(self) -> bool:
        if self._file is None:
            return True
        try:
            on_disk = self.path.stat()
        except OSError:
            return False
        opened = os.fstat(self._file.fileno())
        if (on_disk.st_dev, on_disk.st_ino) != (opened.st_dev, opened.st_ino):
            return True
        return on_disk.st_size < self._file.tell()


class LineTail:
    """Reads whole lines of a growing file."""

    def __init__(self, path: Path, *, longest: int) -> None:
        """Create the reader; the file is opened when it is first read.

        Args:
            path: The file.
            longest: Maximum number of bytes of a line; longer lines are split.
        """
        self._tail = Tail(path)
        self._longest = longest
        self._started = b""
        self.begin = 0
        """The offset in the file of the lines that were returned last."""

    def read(self) -> bytes:
        """Return the whole lines that were written since the last call; empty if there are none."""
        while True:
            before = self._tail.rounds
            piece = self._tail.read()
            lost = self.rest() if self._tail.rounds != before else b""
            # What is left of a file that was replaced counts as before the start of the new file.
            self.begin = self._tail.offset - len(piece) - len(lost) - len(self._started)
            lines = lost + self._whole_lines(piece)
            if lines or not piece:
                return lines

    def rest(self) -> bytes:
        """Return the unfinished last line with a newline, once nothing writes to the file."""
        self.begin = self._tail.offset - len(self._started)
        started, self._started = self._started, b""
        return started + b"\n" if started else b""

    def close(self) -> None:
        """Close the file."""
        self._tail.close()

    def _whole_lines(self, piece: bytes) -> bytes:
        head, newline, tail = piece.rpartition(b"\n")
        lines = self._started + head + newline if newline else b""
        self._started = tail if newline else self._started + tail
        if len(self._started) > self._longest:
            lines += self.rest()
        return lines


def end_of(path: Path) -> bytes:
    """Return a file's last 4096 bytes; empty if it cannot be read."""
    try:
        with path.open("rb", 0) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST_LAST, 0))
            return file.read(_LONGEST_LAST)
    except OSError:
        return b""
