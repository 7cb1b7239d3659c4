"""A command beside the main process of a local container: on pipes, or on its own terminal."""

import fcntl
import os
import selectors
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from orchestrator.engine import LogChunk, Stream, TerminalSize

_CHUNK = 64 * 1024


class LocalProcess:
    """See `orchestrator.engine.interface.protocol.InnerProcess`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        terminal: TerminalSize | None,
    ) -> None:
        self._pipes: dict[int, Stream]
        if terminal is None:
            out, into_out = os.pipe()
            err, into_err = os.pipe()
            self._pipes = {out: "stdout", err: "stderr"}
            ends = (subprocess.DEVNULL, into_out, into_err)
        else:
            self._screen, into = os.openpty()
            self._pipes = {self._screen: "stdout"}
            ends = (into, into, into)
            self.resize(terminal)
            # The first terminal that a session leader opens becomes its controlling terminal.
            command = ("/bin/sh", "-c", 'exec < "$0"; exec "$@"', os.ttyname(into), *command)
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=ends[0], stdout=ends[1], stderr=ends[2],
            start_new_session=True,
        )  # fmt: skip
        for end in {end for end in ends if end >= 0}:
            os.close(end)

    def output(self) -> Iterator[LogChunk]:
        """Yield all output until the command ends."""
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    data = b""
                    # Linux reports the end of a terminal as an error.
                    with suppress(OSError):
                        data = os.read(key.fd, _CHUNK)
                    if data:
                        yield LogChunk(stream=self._pipes[key.fd], data=data)
                    else:
                        selector.unregister(key.fd)

    def write(self, data: bytes) -> None:
        """Send input to the command."""
        os.write(self._screen, data)

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal."""
        packed = struct.pack("HHHH", size.rows, size.columns, 0, 0)
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, packed)

    def wait(self) -> int:
        """Return the command's exit code."""
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close the command's input and output."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = {}
        self._process.kill()
        self._process.wait()
