"""A command beside the main process of a local container: on pipes, or on its own terminal."""

import fcntl
import os
import selectors
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from orchestrator.engine import EngineError, LogChunk, Stream, TerminalSize

_CHUNK = 64 * 1024


class LocalProcess:
    """See `orchestrator.engine.interface.inner_command.PlainProcess`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        stdin: bool,
        terminal: TerminalSize | None,
    ) -> None:
        self._streams: dict[int, Stream]
        self._into: int | None = None
        if terminal is None:
            out, into_out = os.pipe()
            err, into_err = os.pipe()
            self._streams = {out: "stdout", err: "stderr"}
            keys = subprocess.DEVNULL
            if stdin:
                keys, self._into = os.pipe()
            ends = (keys, into_out, into_err)
        else:
            self._into, into = os.openpty()
            self._streams = {self._into: "stdout"}
            ends = (into, into, into)
            self.resize(terminal)
            # The first terminal that a session leader opens becomes its controlling terminal.
            command = ("/bin/sh", "-c", 'exec < "$0"; exec "$@"', os.ttyname(into), *command)
        self._selector = selectors.DefaultSelector()
        for pipe in self._streams:
            self._selector.register(pipe, selectors.EVENT_READ)
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=ends[0], stdout=ends[1], stderr=ends[2],
            start_new_session=True,
        )  # fmt: skip
        for end in {end for end in ends if end >= 0}:
            os.close(end)

    def receive(self, timeout: float | None) -> LogChunk | None:
        """Return output; None at its end."""
        while self._selector.get_map():
            ready = self._selector.select(timeout)
            if not ready:
                raise TimeoutError
            pipe = ready[0][0].fd
            data = b""
            # Linux reports the end of a terminal as an error.
            with suppress(OSError):
                data = os.read(pipe, _CHUNK)
            if data:
                return LogChunk(stream=self._streams[pipe], data=data)
            self._selector.unregister(pipe)
        return None

    def write(self, data: bytes) -> None:
        """Send input to the command."""
        assert self._into is not None, "the command has no input"
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._into, view) :]
        except OSError as error:
            raise EngineError("the command has ended", key="engine.refusal") from error

    def close_stdin(self) -> None:
        """End the command's input."""
        if self._into is not None and self._into not in self._streams:
            os.close(self._into)
            self._into = None

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal."""
        assert self._into is not None, "the command has no terminal"
        packed = struct.pack("HHHH", size.rows, size.columns, 0, 0)
        fcntl.ioctl(self._into, termios.TIOCSWINSZ, packed)

    def wait(self) -> int:
        """Return the command's exit code."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close the command's input and output; as an engine does, this leaves the command."""
        self.close_stdin()
        self._selector.close()
        for pipe in self._streams:
            os.close(pipe)
        self._streams = {}
        if self._process.poll() is None:
            # Whoever ends it is not here, and nobody else waits for it.
            threading.Thread(target=self._process.wait, daemon=True).start()

    def kill(self) -> None:
        """Kill the command, as the end of its container does."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
