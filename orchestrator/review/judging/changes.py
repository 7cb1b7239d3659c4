"""Describe the changes of a candidate: their size, the new lines, and a normalised form."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.repository.commits.changes import patch, stat_lines
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.forms import form_of
from orchestrator.review.judging.instruments import Instruments, is_generated

MOST_READ = 4 * 1024**2
"""Maximum number of bytes of a patch that are read."""
_FILE = re.compile(r'\+\+\+ "?(?:b/)?(.*?)"?\t?$')
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True)
class NewLine:
    """A line that a candidate added."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Change:
    """The changes of one candidate."""

    lines: int
    """Number of added and removed lines, without those of tests and generated files."""
    files: int
    added: tuple[NewLine, ...]
    """New lines in the first MOST_READ bytes of the patch, without tests and generated files."""
    form: str
    """Hash that is equal for changes which differ only in blank lines, comments and the order of
    `import` statements, in languages that are known; empty if nothing was changed.
    """


def read_change(
    repository: Repository, instruments: Instruments, *, base: str, commit: str
) -> Change:
    """Return what a commit changes compared with the base commit.

    Raises:
        RepositoryError: Git failed.
    """
    lines = files = 0
    for added, removed, path in stat_lines(repository, base=base, tip=commit):
        files += 1
        if _is_product(instruments, path):
            lines += added + removed
    text = patch(repository, base=base, tip=commit, limit=MOST_READ).decode("utf-8", "replace")
    new = tuple(
        NewLine(path, number, row[1:])
        for path, number, row in _rows(text)
        if row[0] == "+" and _is_product(instruments, path)
    )
    form = form_of(repository, base=base, commit=commit) if files else ""
    return Change(lines, files, new, form)


def _is_product(instruments: Instruments, path: str) -> bool:
    return not instruments.is_protected(path) and not is_generated(path)


def _rows(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, number and text of each added or removed line of a patch."""
    path, number, in_hunk = "", 0, False
    for row in text.split("\n"):
        if row.startswith("diff --git "):
            in_hunk = False
        elif not in_hunk and (named := _FILE.match(row)):
            path = named[1]
        elif hunk := _HUNK.match(row):
            number, in_hunk = int(hunk[1]), True
        elif in_hunk and row[:1] in ("+", "-"):
            yield path, number, row
            number += row[0] == "+"
        else:
            number += 1
