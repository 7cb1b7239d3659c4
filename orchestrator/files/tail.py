"""Read a file that another process writes, in bounded pieces, as it grows."""

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_PIECE = 1024**2
"""Bytes read at once, at most."""


class Tail:
    """Reads a file from its first byte, whether it is there yet or not.

    One that is written anew, in place or as another file of that name, is read from its start
    again, after the rest of the old one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rounds = 0
        """How often it was begun."""
        self._file: BinaryIO | None = None

    def read(self) -> bytes:
        """Return a piece of what has come since the last call; nothing when nothing has."""
        piece = self._piece()
        if not piece and self._is_anew():
            self._begin()
            piece = self._piece()
        return piece

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _piece(self) -> bytes:
        return self._file.read(_PIECE) if self._file is not None else b""

    def _is_anew(self) -> bool:
        if self._file is None:
            return True
        try:
            there = self.path.stat()
        except OSError:
            return False
        here = os.fstat(self._file.fileno())
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            return True
        return there.st_size < self._file.tell()

    def _begin(self) -> None:
        self.close()
        with suppress(OSError):
            self._file = self.path.open("rb", 0)
            self.rounds += 1


class LineTail:
    """Reads whole lines of a file, as a `Tail` does bytes."""

    def __init__(self, path: Path, *, longest: int) -> None:
        """Prepare to read.

        Args:
            path: The file.
            longest: Bytes of a line; a longer one is cut in pieces.
        """
        self._tail = Tail(path)
        self._longest = longest
        self._started = b""

    def read(self) -> bytes:
        """Return whole lines that have come since the last call; nothing when there is none yet."""
        while True:
            before = self._tail.rounds
            piece = self._tail.read()
            lost = self.rest() if self._tail.rounds != before else b""
            lines = lost + self._whole_lines(piece)
            if lines or not piece:
                return lines

    def rest(self) -> bytes:
        """Return the last line, which has no end, as a line; to be called when none will come."""
        started, self._started = self._started, b""
        return started + b"\n" if started else b""

    def close(self) -> None:
        """Let go of the file."""
        self._tail.close()

    def _whole_lines(self, piece: bytes) -> bytes:
        head, newline, tail = piece.rpartition(b"\n")
        lines = self._started + head + newline if newline else b""
        self._started = tail if newline else self._started + tail
        if len(self._started) > self._longest:
            lines += self.rest()
        return lines


def last_line(path: Path, *, most: int = 4096) -> bytes:
    """Return the last line of a file that is not blank, at most its last `most` bytes."""
    try:
        with path.open("rb", 0) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
            return file.read(most).rstrip().rpartition(b"\n")[2]
    except OSError:
        return b""
