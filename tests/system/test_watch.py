"""Tests of `watch` on a terminal, for a run of another process in a real engine."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.state.record.states import WorkerState
from tests.support.cli import orchestrator, start
from tests.support.live import PATIENCE, eventually, states
from tests.support.repository import make_repository

pytestmark = pytest.mark.docker
BUSY = "echo x > new.txt; printf 'look \\033[2J\\n'; while :; do :; done"
QUIET = "sleep 8; echo bye; exit 3"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A terminal of 140 columns, and its output."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.drawn = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read_until(self, holds: Callable[[], object]) -> None:
        """Read until a condition on the output holds."""
        deadline = time.monotonic() + 180
        while not holds():
            assert time.monotonic() < deadline, self.drawn[-3000:]
            if select.select([self.ours], [], [], 0.1)[0]:
                self.drawn += self._decoder.decode(os.read(self.ours, 65536))

    def rows(self, worker: int) -> list[str]:
        """Return all drawn rows of a worker, without control sequences.

        The last line may have been read in part only, and is left out.
        """
        lines = _ESCAPES.sub("", self.drawn.rpartition("\n")[0]).replace("\r", "\n").splitlines()
        return [line for line in lines if line.startswith(f"{worker}  ")]


@pytest.mark.variants("mounts")
@pytest.mark.usefixtures("transfer")
@pytest.mark.extra
def test_watch_shows_the_workers_and_ends_with_the_run(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    command = ("parallel", "--agent-cli", "shell", "--network", "none", "--task", BUSY, "--task",
               QUIET, "--workers", "2", "--timeout-per-worker", "150", "--grace", "0")  # fmt: skip
    running = start(*command, cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    terminal = Terminal()
    try:
        eventually(lambda: states(repo) == [WorkerState.RUNNING] * 2, "the start")
        watching = start(
            "watch", cwd=repo, stdout=terminal.theirs, stderr=terminal.theirs,
            env={"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "", "LINES": ""},
        )  # fmt: skip
        os.close(terminal.theirs)
        # Changed files, CPU, memory, disk, and the last line without control characters.
        measured = r"running +\d.* 1 +[1-9]\d*% +[\d.]+ [KM]iB +[\d.]+ [KM]iB +look"
        terminal.read_until(lambda: any(re.search(measured, row) for row in terminal.rows(1)))
        terminal.read_until(lambda: any(" failed " in row for row in terminal.rows(2)))
        assert " running " in terminal.rows(1)[-1], "another worker's end is shown at once"
        running.send_signal(signal.SIGINT)
        terminal.read_until(lambda: terminal.drawn.endswith("orchestrator parallel-cleanup\r\n"))
        assert (watching.wait(PATIENCE), running.wait(PATIENCE)) == (1, 130)
    finally:
        for process in (running, watching):
            process.terminate()
            process.wait(PATIENCE)
        os.close(terminal.ours)
        orchestrator("parallel-cleanup", "--purge", cwd=repo)
    assert terminal.rows(1)[-1].split()[-6:-4] == ["cancelled", "0"]
