"""Runs INSIDE a worker's container: starts a program that does not report, or not give up, itself.

It is given to the container's Python as text, so it imports the standard library alone. Its
arguments are the program's command line; what it adds depends on which program that is.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

LONGEST = 4000
"""Characters of a text that are passed on."""
LARGEST = 256 * 1024 * 1024
"""Bytes of a trajectory that is read at all: the model's commands can write to it too."""
TRAJECTORY = ".mini-trajectory.json"
LINE = 64 * 1024
RETRIES = 6
"""aider waits twice as long each time: after these it has asked for 8 s, and would for 64."""
NEAR = 20
"""Lines of an error, at most, before the one that announces a retry."""


def run_mini(command: list[str]) -> int:
    """Run `mini`, which says how it ended in a file only; the last line printed is its gist.

    It starts in the home directory, for it takes a `mini.yaml` of the current one for its own.
    """
    home = os.path.expanduser("~")
    trajectory = os.path.join(home, TRAJECTORY)
    here = f"environment.cwd={json.dumps(os.getcwd())}"
    child = start([*command, "-c", here, "-o", trajectory], lambda: os.chdir(home))
    code = end_of(child)
    found = summary(trajectory)
    if found is not None:
        sys.stdout.write("\n" + json.dumps(found) + "\n")
        sys.stdout.flush()
    return code


def run_aider(command: list[str]) -> int:
    """Run `aider`, and end it when its model has not answered for a while."""
    reading, writing = os.pipe()
    child = start(command, lambda: os.dup2(writing, 1))
    os.close(writing)
    patience = Patience()
    with open(reading, "rb") as output:
        while line := output.readline(LINE):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if patience.ends_with(line):
                os.kill(child, signal.SIGTERM)
    code = end_of(child)
    return 1 if patience.over else code


class Patience:
    """Counts how often aider says that it tries again; what a model writes is not taken for it."""

    def __init__(self) -> None:
        """Start with all of it."""
        self.over = False
        self.retries = 0
        self.near = 0

    def ends_with(self, line: bytes) -> bool:
        """Take in a line; True once, when it is the last straw."""
        if line.startswith(b"litellm."):
            self.near = NEAR
        elif line.startswith(b"Tokens: "):
            self.retries = 0
        elif self.near and line.startswith(b"Retrying in "):
            self.retries += 1
            self.near = 0
        self.near = max(self.near - 1, 0)
        was_over, self.over = self.over, self.over or self.retries >= RETRIES
        return self.over and not was_over


def start(command: list[str], prepare: Callable[[], object]) -> int:
    """Start a program that gets the signals that we get."""
    child = os.fork()
    if child == 0:
        try:
            prepare()
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error.strerror}\n")
            sys.stderr.flush()
        os._exit(127)

    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
    return child


def end_of(child: int) -> int:
    """Wait for a program's end, and give its exit code as a shell would."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def summary(trajectory: str) -> dict[str, object] | None:
    """Say in a few words what a trajectory says; None if there is none to read."""
    try:
        if os.stat(trajectory).st_size > LARGEST:
            return None
        with open(trajectory, encoding="utf-8", errors="replace") as file:
            return condensed(json.load(file))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def condensed(trajectory: dict[str, Any]) -> dict[str, object]:
    """Take out of a trajectory what there is to know."""
    info, messages = trajectory["info"], trajectory["messages"]
    extras = [message.get("extra") or {} for message in messages]
    answers = [extra["response"] for extra in extras if extra.get("response")]
    limits = info["config"]["agent"]
    return {
        "mini_version": info["mini_version"],
        "exit_status": info["exit_status"],
        "steps": len(answers),
        "cost": info["model_stats"]["instance_cost"],
        "tokens": sum(tokens(answer) for answer in answers),
        "step_limit": limits["step_limit"],
        "cost_limit": limits["cost_limit"],
        "said": said(messages),
    }


def tokens(answer: object) -> int:
    """Count what one answer of the model was billed for."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return (usage or {}).get("total_tokens") or 0


def said(messages: list[dict[str, Any]]) -> str:
    """Return the last text of any weight."""
    texts = (m.get("content") for m in reversed(messages) if m.get("role") in ("exit", "assistant"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")[:LONGEST]


if __name__ == "__main__":
    programs = {"mini": run_mini, "aider": run_aider}
    sys.exit(programs[os.path.basename(sys.argv[1])](sys.argv[1:]))
