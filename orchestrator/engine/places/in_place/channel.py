"""The porter's side of a step and its channel: the FIFOs between the porter and the step's shim.

The step can read `obey` and write to the others. What it writes is bounded here.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.engine.places.in_place.records import Output

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_EXIT = re.compile(rb"exit (\d{1,3})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_WORD = 4096
_CHUNK = 64 * 1024
_NOTHING = DiskUse(size=0, files=0, hidden=0)


class Channel:
    """FIFOs through which the porter starts and stops one step, and reads its output."""

    def __init__(self, directory: str) -> None:
        """Create the FIFOs, and open this side of them."""
        self._directory = directory
        self._said = b""
        # protection: step-cannot-talk-instead-of-porter
        modes = {"obey": 0o644, "say": 0o622, "out": 0o622, "err": 0o622}
        for name, mode in modes.items():
            path = os.path.join(directory, name)
            with suppress(FileExistsError):
                os.mkfifo(path)
            os.chmod(path, mode)
        # Also for reading: a FIFO without a reader cannot be opened for writing.
        self._obey: int | None = os.open(
            os.path.join(directory, "obey"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        )
        self.say = os.open(os.path.join(directory, "say"), READ)
        self.output = {
            "stdout": os.open(os.path.join(directory, "out"), READ),
            "stderr": os.open(os.path.join(directory, "err"), READ),
        }

    def go(self, argv: Sequence[str], env: Mapping[str, str], workdir: str) -> None:
        """Let the step start a command."""
        order = os.open(
            os.path.join(self._directory, "order"),
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC,
            0o644,
        )
        with open(order, "wb") as file:
            file.write(os.fsencode(order_text(argv, env, workdir)))
        self.send("go")

    def forget_order(self) -> None:
        """Remove the command and its variables, which have been read."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, "order"))

    def send(self, words: str) -> None:
        """Send words to the shim; if it does not read them, they are dropped."""
        if self._obey is not None:
            with suppress(BlockingIOError):
                os.write(self._obey, f"{words}\n".encode())

    def kill(self) -> None:
        """Make the shim kill all processes of the step, or end after `exit`."""
        if self._obey is not None:
            os.close(self._obey)
            self._obey = None

    def hear(self) -> tuple[list[bytes], bool]:
        """Return complete lines that the shim said, and whether no process can say any more."""
        try:
            data = os.read(self.say, _CHUNK)
        except BlockingIOError:
            return [], False
        *lines, self._said = (self._said + data).split(b"\n")
        # protection: words-of-step-are-bounded
        if len(self._said) > _LONGEST_WORD:
            self._said = b""
        return lines, not data

    def read(self, stream: str) -> bytes | None:
        """Return some output; None if there is none at the moment, nothing at its end."""
        try:
            return os.read(self.output[stream], _CHUNK)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close this side of the channel, which kills a step that still runs."""
        self.kill()
        for descriptor in (self.say, *self.output.values()):
            os.close(descriptor)


@dataclass
class Step:
    """A step of the place, with its limits; the attribute `state` says how far it is."""

    name: str
    channel: Channel
    files: dict[str, Output]
    grace: float
    after: str | None
    timeout: float | None
    disk: int | None
    inodes: int | None
    output: int | None
    serves: bool
    """Whether the step has no end of its own: more output is discarded."""
    limited: list[str]
    """Names of the parts whose growth is limited."""
    order: dict[str, Any] | None = None
    """The command that was ordered, until it begins."""
    is_held: bool = False
    """Whether the command waits for `begin`, because the step's container runs already."""
    state: Literal["waiting", "ordered", "starting", "running", "ended"] = "waiting"
    nonce: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    """The limit for which the porter stops the step."""
    until: float = math.inf
    """When the step must begin, or end, or be killed."""
    killed: bool = False
    base: DiskUse = _NOTHING
    use: DiskUse = _NOTHING


def exit_code(line: bytes) -> int | None:
    """Return the exit code in a line that a shim said; None if the line has none."""
    found = _EXIT.fullmatch(line)
    code = int(found[1]) if found else 256
    return code if code < 256 else None


def order_text(argv: Sequence[str], env: Mapping[str, str], workdir: str) -> str:
    """Return the shell text that becomes a command.

    Raises:
        ValueError: The command is empty, or a shell cannot set one of the variables.
    """
    if not argv or any("\0" in word for word in (*argv, *env.values(), workdir)):
        raise ValueError("a command needs at least one word, and no word with a zero byte")
    wrong = sorted(name for name in env if not _NAME.fullmatch(name))
    if wrong:
        raise ValueError(f"a shell cannot set the variable {wrong[0]!r}")
    return "\n".join(
        (
            "echo began >&6",
            f"cd {_quoted(workdir)} || exit 126" if workdir else "",
            # Variables that shells set by themselves.
            "unset PWD OLDPWD SHLVL",
            *(f"export {name}={_quoted(value)}" for name, value in env.items()),
            f"exec {' '.join(map(_quoted, argv))} 4>&- 5>&- 6>&-",
            "",
        )
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
