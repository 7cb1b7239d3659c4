"""Runs INSIDE a worker's container: starts `mini`, and prints at its end how that went.

It is given to the container's Python as text, so it imports the standard library alone. `mini` says
how it ended nowhere but in its trajectory, a file; the last line printed here is the gist of it.
"""

import json
import os
import signal
import sys
from types import FrameType
from typing import Any

LONGEST = 4000
"""Characters of a text that are passed on."""
LARGEST = 256 * 1024 * 1024
"""Bytes of a trajectory that is read at all: the model's commands can write to it too."""
NAME = ".mini-trajectory.json"


def start(command: list[str], trajectory: str) -> int:
    """Run the program to its end, and give its exit code as a shell would.

    It starts in the home directory: `mini` takes a `mini.yaml` of the current directory for its
    own.
    """
    here = json.dumps(os.getcwd())
    program = [*command, "-c", f"environment.cwd={here}", "-o", trajectory]
    child = os.fork()
    if child == 0:
        try:
            os.chdir(os.path.dirname(trajectory))
            os.execvp(program[0], program)
        except OSError as error:
            sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        os._exit(127)

    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(child, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, pass_on)
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
    """Give the last text of any weight."""
    texts = (m.get("content") for m in reversed(messages) if m.get("role") in ("exit", "assistant"))
    return next((text for text in texts if isinstance(text, str) and text.strip()), "")[:LONGEST]


def main() -> None:
    """Run, report, end as it did."""
    trajectory = os.path.join(os.path.expanduser("~"), NAME)
    code = start(sys.argv[1:], trajectory)
    found = summary(trajectory)
    if found is not None:
        sys.stdout.write("\n" + json.dumps(found) + "\n")
        sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
