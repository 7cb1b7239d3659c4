"""A terminal on which a command of the orchestrator runs."""

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 180


class Screen:
    """A terminal, and a command that runs on it."""

    def __init__(self, repo: Path, *arguments: str) -> None:
        self._end, other = os.openpty()
        self.resize(rows=30, columns=90)
        self.before = termios.tcgetattr(self._end)
        self.said = b""
        # The first terminal that a session leader opens becomes its controlling terminal.
        enter = ("/bin/sh", "-c", 'exec < "$0"; exec "$@"', os.ttyname(other))
        self.process = subprocess.Popen(
            [*enter, sys.executable, "-m", "orchestrator", *arguments],
            cwd=repo, stdin=subprocess.DEVNULL, stdout=other, stderr=other,
            start_new_session=True,
        )  # fmt: skip
        os.close(other)

    def resize(self, *, rows: int, columns: int) -> None:
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def read_until(self, pattern: str) -> None:
        """Read until new output matches a pattern."""
        deadline = time.monotonic() + PATIENCE
        said = b""
        while not re.search(pattern, said.decode(errors="replace")):
            assert time.monotonic() < deadline, f"{pattern!r} not in {said!r}"
            said += self._read()

    def _read(self) -> bytes:
        said = b""
        if select.select([self._end], [], [], 0.1)[0]:
            # Linux reports the end of a terminal as an error.
            with suppress(OSError):
                said = os.read(self._end, 65536)
        self.said += said
        return said

    def finish(self) -> int:
        """Read to the end, and check that the terminal was restored."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.said
            self._read()
        while self._read():
            pass
        assert termios.tcgetattr(self._end) == self.before
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)
