"""Tests that control characters of tasks do not reach a terminal with the live board."""

import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.assurance.attacks.attack import load
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.campaign import set_trap, variables
from tests.assurance.attacks.target import Target, make_target

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

ATTACKS = ("46-names", "67-binary-output", "68-terminal", "144-markup", "154-live-board")
DEADLINE = 300.0
_COLUMNS, _ROWS = 180, 50
# Sequences of the board: hide or show the cursor, move up, erase a line, and its colours.
_OURS = re.compile(r"\x1b\[(?:\?25[lh]|1A|2K|(?:[01]|3[123]|1;3[123])?m)|\r(?=\n|\x1b\[(?:2K|1A))")
_STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def run_on_terminal(caller: Caller, command: list[str], cwd: Path) -> bytes:
    """Run a command with stdout and stderr on a terminal, and return its output."""
    ours, theirs = pty.openpty()
    ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", _ROWS, _COLUMNS, 0, 0))
    streams = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs}
    os.fchmod(theirs, 0o666)
    with caller.popen(["env", "TERM=xterm", *command], cwd, **streams) as process:
        os.close(theirs)
        try:
            return b"".join(_read(ours))
        finally:
            # The output has ended, so the process ends soon unless it hangs.
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            os.close(ours)


def _read(descriptor: int) -> Iterator[bytes]:
    deadline = time.monotonic() + DEADLINE
    while (left := deadline - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            try:
                chunk = os.read(descriptor, 1 << 16)
            except OSError:
                # Linux reports EIO once no process has the other end open.
                return
            yield chunk
    raise AssertionError(f"the run still went on after {DEADLINE:.0f} s")


def make_terminal_target(caller: Caller) -> tuple[Target, list[str]]:
    """Create a repository, and return it with the tasks that attack the user's terminal."""
    target = make_target(caller, caller.home / "terminal" / "watched", "")
    marks = target.path.parent / "marks"
    marks.mkdir()
    attacks = [load(name) for name in ATTACKS]
    for attack in attacks:
        set_trap(marks, attack)
    caller.own(marks)
    return target, [attack.task(variables(target, marks, attack)) for attack in attacks]


@pytest.mark.parametrize("who", ["root", "user"])
@pytest.mark.extra
def test_only_control_characters_of_the_board_reach_the_terminal(
    everyone: dict[str, Caller], who: str
) -> None:
    if who not in everyone:
        # Only root can run commands as another user.
        assert set(everyone) == {"user"}
        return
    target, tasks = make_terminal_target(everyone[who])
    named = [word for task in tasks for word in ("--task", task)]
    command = [
        everyone[who].python, "-m", "orchestrator", "parallel", "--agent-cli", "shell",
        "--network", "none", "--workers", str(len(tasks)), "--timeout-per-worker", "120", *named,
    ]  # fmt: skip

    said = run_on_terminal(everyone[who], command, target.path)
    cleaned = run_on_terminal(
        everyone[who],
        [everyone[who].python, "-m", "orchestrator", "parallel-cleanup", "--purge"],
        target.path,
    )

    shown = said.decode("utf-8", "strict")
    # The board was shown, with output of the workers while they ran.
    assert "LAST LINE" in shown
    assert "colour" in shown
    assert "WORKER  TASK" in shown, "the table of the board was not shown"
    assert "removed worker 5" in cleaned.decode("utf-8", "strict")
    assert foreign_control_characters(shown) == []
    assert foreign_control_characters(cleaned.decode()) == []
    assert len(said) < 2_000_000
    assert list(target.path.glob(".architect-parallel-*")) == []


def foreign_control_characters(shown: str) -> list[str]:
    """Return the control characters that are not the board's own, with the text around them."""
    rest = _OURS.sub("", shown)
    found = [n for n, c in enumerate(rest) if c != "\n" and unicodedata.category(c) in _STEERING]
    return [ascii(rest[max(n - 20, 0) : n + 20]) for n in found[:10]]
