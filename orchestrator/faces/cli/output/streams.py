"""Standard streams whose failure or slow reader never ends or delays a command.

Printing is the last and least of what a command does. A full disk, a closed pipe or a reader that
does not read must not keep it from merging, writing reports and removing containers.
"""

import errno
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TextIO

from orchestrator.faces.cli.output.messages import tell_error

OUTPUT_LOST = 74
"""Exit code of a command that succeeded but could not print its result."""
BROKEN_PIPE = 141
"""Exit code that shells report for a program that SIGPIPE ended."""
_PATIENCE = 1.0
"""Seconds that a command waits for a reader once, before it goes on."""
_MOST = 64 * 1024**2
"""Maximum number of bytes that wait for the reader of stdout; then the rest is lost."""
_MOST_MESSAGES = 1024**2
"""Maximum number of bytes that wait for the reader of stderr; more are left out."""


class LostOutputError(OSError):
    """A command that only prints cannot print."""

    @property
    def exit_code(self) -> int:
        """Return 141 if the reader closed the pipe, and 74 otherwise."""
        return BROKEN_PIPE if self.errno == errno.EPIPE else OUTPUT_LOST


class Outlet(io.RawIOBase):
    """Writes to a descriptor in a thread, and keeps the first error instead of raising it."""

    def __init__(self, descriptor: int, *, most: int, is_lossy: bool = False) -> None:
        """Prepare to write.

        Args:
            descriptor: Descriptor of the stream.
            most: Maximum number of bytes that wait for the reader.
            is_lossy: Whether more bytes are left out, instead of ending the output.
        """
        self.error: OSError | None = None
        """Why the rest of the output is lost; None if it is not."""
        self.is_needed = False
        """Whether the command only prints: `write` waits for the reader and raises errors."""
        self._descriptor = descriptor
        self._most = most
        self._is_lossy = is_lossy
        self._pending: deque[bytes] = deque()
        self._size = 0
        """Number of bytes that wait."""
        self._is_stalled = False
        self._changed = threading.Condition()
        self._writer: threading.Thread | None = None

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - typing has no name for buffers yet
        """Write, or keep for a slow reader, and return the number of bytes.

        Raises:
            LostOutputError: The output is needed, and cannot be written.
        """
        piece = bytes(data)
        with self._changed:
            if self.error is None and piece:
                self._add(piece)
                if self.is_needed or not self._is_stalled:
                    limit = None if self.is_needed else _PATIENCE
                    self._is_stalled = not self._changed.wait_for(lambda: not self._pending, limit)
            if self.is_needed and self.error is not None:
                raise LostOutputError(self.error.errno, self.error.strerror) from self.error
        return len(piece)

    def check_reader(self) -> None:
        """Check that the output has a reader, for a command that has nothing to print now.

        Raises:
            LostOutputError: The output is needed, and its reader has closed the pipe.
        """
        poll = select.poll()
        poll.register(self._descriptor, 0)
        if self.is_needed and any(found & select.POLLERR for _, found in poll.poll(0)):
            raise LostOutputError(errno.EPIPE, os.strerror(errno.EPIPE))

    def drain(self, timeout: float | None = None, *, most: int = 0) -> None:
        """Wait until all but `most` bytes are written, or lost; at most for `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pending or self._size <= most, timeout)

    def _add(self, piece: bytes) -> None:
        if self._size > self._most:
            if not self._is_lossy:
                self._lose(OSError(errno.ENOBUFS, "its reader does not read"))
            return
        self._pending.append(piece)
        self._size += len(piece)
        self._changed.notify_all()
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="output", daemon=True)
            self._writer.start()

    def _lose(self, error: OSError) -> None:
        self.error = error
        self._pending.clear()
        self._changed.notify_all()

    def _write(self) -> None:
        while self.error is None:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self.error)
                piece = self._pending[0] if self._pending else b""
            try:
                _write_whole(self._descriptor, piece)
            except OSError as error:
                with self._changed:
                    self._lose(error)
                return
            with self._changed:
                if self._pending:
                    self._size -= len(self._pending.popleft())
                self._is_stalled = self._is_stalled and bool(self._pending)
                self._changed.notify_all()


def _write_whole(descriptor: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            # Another program set the terminal or pipe, which it shares, to non-blocking.
            select.select([], [descriptor], [])


class Streams:
    """This process's stdout and stderr."""

    def __init__(self) -> None:
        """Replace `sys.stdout` and `sys.stderr`; open the null device for what is closed."""
        _fill()
        self._out = Outlet(1, most=_MOST)
        self._err = Outlet(2, most=_MOST_MESSAGES, is_lossy=True)
        sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0))
        sys.stdout = _text(self._out, sys.stdout)
        sys.stderr = _text(self._err, sys.stderr)

    def end(self, code: int) -> int:
        """Wait until all output is written, and return the exit code of the process."""
        for outlet, stream in ((self._out, sys.stdout), (self._err, sys.stderr)):
            outlet.is_needed = False
            with suppress(OSError):
                stream.flush()
        self._out.drain()
        error = self._out.error
        # A reader that has read enough is no failure.
        if error is not None and error.errno != errno.EPIPE:
            tell_error(f"the output could not be written: {error.strerror}")
            code = code or OUTPUT_LOST
        self._err.drain()
        return code


def end_with_reader() -> None:
    """Let printing raise `LostOutputError`, for a command that does nothing else until its end."""
    for outlet in _outlets():
        outlet.is_needed = True


def check_readers() -> None:
    """Check that output which is needed has a reader.

    Raises:
        LostOutputError: The reader has closed the pipe.
    """
    for outlet in _outlets():
        outlet.check_reader()


def wait_for_readers(timeout: float | None = None, *, most: int = 0) -> None:
    """Wait until the readers have read all but `most` bytes; at most for `timeout` seconds.

    Raises:
        LostOutputError: The output cannot be written, or its reader has closed the pipe.
    """
    for outlet in _outlets():
        outlet.drain(timeout, most=most)
        if outlet.error is not None:
            raise LostOutputError(outlet.error.errno, outlet.error.strerror) from outlet.error


def _outlets() -> Iterator[Outlet]:
    for stream in (sys.stdout, sys.stderr):
        outlet = getattr(getattr(stream, "buffer", None), "raw", None)
        if isinstance(outlet, Outlet):
            yield outlet


def _fill() -> None:
    """Open the null device as each standard descriptor that is closed.

    Otherwise the next file that is opened would have the number, and receive the output.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)


def _text(outlet: Outlet, before: TextIO | None) -> TextIO:
    encoding = before.encoding if before else "utf-8"
    return io.TextIOWrapper(
        io.BufferedWriter(outlet), encoding, "backslashreplace", line_buffering=outlet.isatty()
    )
