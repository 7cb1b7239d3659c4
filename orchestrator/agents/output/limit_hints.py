"""Limits that a program says it ran into, for those whose hits nobody else can count."""

from pathlib import Path
from typing import Final

from orchestrator.agents.output.search import text_tail

_TAIL: Final = 8 * 1024
_WORDS: Final = {
    # A fork bomb may be over before anyone can measure it; what it says then is all there is.
    "pids": (
        "Cannot fork",  # dash
        "fork: Resource temporarily unavailable",  # bash, git
        "can't start new thread",  # Python
        "BlockingIOError: [Errno 11]",
        "spawn EAGAIN",  # Node.js
    ),
    "open_files": ("Too many open files", "EMFILE"),
    # The work tree has no such end of its own: only the tmpfs mounts do.
    "tmp": ("No space left on device", "ENOSPC"),
}


def limits_named(stderr: Path) -> tuple[str, ...]:
    """Name the limits that a failed program's last words speak of: `pids`, `open_files`, `tmp`."""
    said = text_tail(stderr, _TAIL)
    return tuple(
        limit for limit, phrases in _WORDS.items() if any(phrase in said for phrase in phrases)
    )
