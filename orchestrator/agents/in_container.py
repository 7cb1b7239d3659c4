"""Start `mini` or `aider` INSIDE a container: print `mini`'s report, or limit aider's retries.

Its source text is passed to the container's Python, so it imports only the standard library. Its
arguments are the command line of the program; the name of the program selects the behaviour.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

LONGEST = 4000
"""Maximum number of characters of a message that are copied from `mini`'s trajectory file to the
summary.
"""
LARGEST = 256 * 1024 * 1024
"""Maximum size in bytes of `mini`'s trajectory file (the record of its steps); the model's commands
can write to it too.
"""
TRAJECTORY = ".mini-trajectory.json"
LINE = 64 * 1024
RETRIES = 6
"""Number of retries after which aider is stopped: aider doubles each delay, and the next delay
would be 64 s.
"""
NEAR = 20
"""Maximum number of lines between an error in aider's output and the line that announces a retry.
"""


def run_mini(command: list[str]) -> int:
    """Run `mini`, which reports only to a file, and print a summary of the file as the last line.

    `mini` starts in the home directory, because it would load a `mini.yaml` of the worktree as its
    own configuration.
    """
    home = os.path.expanduser("~")
    trajectory = os.path.join(home, TRAJECTORY)
    here = f"environment.cwd={json.dumps(os.getcwd())}"
    child = start([*command, "-c", here, "-o", trajectory], lambda: os.chdir(home))
    code = end_of(child)
    report = summary(trajectory)
    if report is not None:
        sys.stdout.write("\n" + json.dumps(report) + "\n")
        sys.stdout.flush()
    return code


def run_aider(command: list[str]) -> int:
    """Run `aider`, and stop it when it has retried a failing call of the model too often."""
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
    """Counts how often aider retried a failing call; an answer of the model resets the count."""

    def __init__(self) -> None:
        """Start with no counted retries."""
        self.over = False
        self.retries = 0
        self.near = 0

    def ends_with(self, line: bytes) -> bool:
        """Process a line of aider's output; return True when the maximum of retries is reached."""
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
    """Start a program in a child process, pass SIGTERM and SIGINT on to it, return its id.

    The signals stay blocked until their handlers are installed: a signal in between would end
    this process alone, and the started program would continue.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    child = os.fork()
    if child == 0:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
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
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child


def end_of(child: int) -> int:
    """Wait for a program to end, and return its exit code as a shell would."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def summary(trajectory: str) -> dict[str, object] | None:
    """Return a summary of the trajectory file that `mini` wrote; None if the file is unreadable."""
    try:
        if os.stat(trajectory).st_size > LARGEST:
            return None
        with open(trajectory, encoding="utf-8", errors="replace") as file:
            return condense(json.load(file))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def condense(trajectory: dict[str, Any]) -> dict[str, object]:
    """Return the fields that the adapter reads from a trajectory, the log of the program `mini`."""
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
    """Return the number of tokens that an answer of the model was billed for."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return (usage or {}).get("total_tokens") or 0


def said(messages: list[dict[str, Any]]) -> str:
    """Return the shortened text of the last message by the model or by `mini` at its exit."""
    texts = (m.get("content") for m in reversed(messages) if m.get("role") in ("exit", "assistant"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")[:LONGEST]


if __name__ == "__main__":
    programs = {"mini": run_mini, "aider": run_aider}
    sys.exit(programs[os.path.basename(sys.argv[1])](sys.argv[1:]))
