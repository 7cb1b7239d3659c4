"""Collect messages for the user about work that was left out or changed."""

import os

MOST_NOTES = 20
LONGEST_NOTE = 200
"""Maximum number of characters of a note; a character takes up to 12 bytes, and the host reads at
most 64 KiB.
"""


class Notes:
    """The messages of one harvest; warnings about lost work come first."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        """Add a warning about work that could not be kept."""
        self.texts.insert(0, text)

    def add(self, text: str) -> None:
        """Add a message that is not a warning."""
        self.texts.append(text)

    def add_path(self, what: str, path: str) -> None:
        """Add the note `what`, followed by the path of a file or directory of the worktree."""
        path = os.path.relpath(os.path.join(self._workspace, path), self._workspace)
        self.texts.append(f"{what}: {path}")


def few_notes(notes: list[str]) -> list[str]:
    """Shorten a list of notes to the first ones of each kind, with the number of the others."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        text = note if len(note) <= LONGEST_NOTE else f"{note[:120]}...{note[-70:]}"
        kinds.setdefault(note.partition(": ")[0], []).append(text)
    most = len(notes) if len(notes) <= MOST_NOTES else max(1, MOST_NOTES // len(kinds) - 1)
    few: list[str] = []
    for kind, found in kinds.items():
        few += found[:most]
        few += [f"{kind[:LONGEST_NOTE]}: {len(found) - most} more"] if len(found) > most else []
    rest = [f"{len(few) - MOST_NOTES + 1} more notes"] if len(few) > MOST_NOTES else []
    return [*few[: MOST_NOTES - len(rest)], *rest]


def last_line(text: str) -> str:
    """Return the last line of git's error output."""
    return text.strip().rpartition("\n")[2]
