"""Start an agent program through the helper `in_container`, or with a long task on its stdin.

A task that is too long for one argument is split into several arguments of a shell, which writes
the whole task to the stdin.
"""

from importlib.resources import files
from typing import Final

from orchestrator.agents.base import LONGEST_WORD

_PIECE: Final = LONGEST_WORD // 4
"""Number of characters of each piece of a long task, so that a piece fits into one argument even
with four bytes per character.
"""
_ON_STDIN: Final = (
    'n=$1; shift; : > "$HOME/task"; while [ "$n" -gt 0 ]; do '
    'printf %s "$1" >> "$HOME/task"; n=$((n - 1)); shift; done; exec "$@" < "$HOME/task"'
)


def is_long(task: str) -> bool:
    """Return whether a task, with an option's name before it, is too long for one argument."""
    return len(task.encode("utf-8", "replace")) > LONGEST_WORD - 100


def pieces(task: str) -> tuple[str, ...]:
    """Split a task into pieces that each fit into one argument."""
    return tuple(task[at : at + _PIECE] for at in range(0, len(task), _PIECE))


def on_stdin(task: str, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command line that starts a program with a long task on stdin.

    Args:
        task: The text that the program reads from stdin.
        argv: The program's command line.
    """
    parts = pieces(task)
    return ("sh", "-c", _ON_STDIN, "sh", str(len(parts)), *parts, *argv)


def starter() -> tuple[str, ...]:
    """Return the command that starts a program through `in_container`, with the image's Python."""
    text = files("orchestrator.agents").joinpath("in_container.py").read_text(encoding="utf-8")
    return ("python3", "-I", "-c", text)
