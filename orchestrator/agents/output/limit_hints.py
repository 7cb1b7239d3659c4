"""Detect in error messages that a program reached a limit that Docker does not report."""

from pathlib import Path
from typing import Final

from orchestrator.agents.output.search import text_tail

_TAIL: Final = 8 * 1024
_WORDS: Final = {
    # A fork bomb may end before it can be measured; its error messages are the only evidence.
    "pids": (
        "Cannot fork",  # dash
        "fork: Resource temporarily unavailable",  # bash, git
        "can't start new thread",  # Python
        "BlockingIOError: [Errno 11]",
        "spawn EAGAIN",  # Node.js
    ),
    "open_files": ("Too many open files", "EMFILE"),
    # The worktree has a different limit; this message comes only from the tmpfs mounts.
    "tmp": ("No space left on device", "ENOSPC"),
}


def limits_named(stderr: Path) -> tuple[str, ...]:
    """Return the limits that a program's last errors mention: `pids`, `open_files`, `tmp`."""
    tail = text_tail(stderr, _TAIL)
    return tuple(
        limit for limit, phrases in _WORDS.items() if any(phrase in tail for phrase in phrases)
    )
