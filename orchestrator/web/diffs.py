"""Split a patch into files, hunks and numbered lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from orchestrator.git.changes import patch
from orchestrator.git.repository import Repository
from orchestrator.landing.branches import Branch
from orchestrator.text.sanitize import lines, one_line

MOST_BYTES = 1024**2
"""Maximum number of bytes of a patch that a page shows."""
MOST_LINES = 6000
"""Maximum number of lines of a patch that a page shows."""
_LONGEST = 2000
"""Maximum number of characters of a patch's line that a page shows."""
_MANY = 400
"""Number of changed lines above which a file's changes are hidden until a click."""
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@ ?(.*)")
Mark = Literal["add", "del", "same", "hunk", "note"]


@dataclass(frozen=True)
class Line:
    """A line of a patch, with its numbers in the old and in the new file."""

    mark: Mark
    old: int | None
    new: int | None
    text: str


@dataclass
class FileDiff:
    """The changes of one file."""

    path: str
    change: str = "modified"
    insertions: int = 0
    deletions: int = 0
    lines: list[Line] = field(default_factory=list)

    @property
    def is_large(self) -> bool:
        """Whether the page hides the file's changes until a click."""
        return self.insertions + self.deletions > _MANY


@dataclass(frozen=True)
class Diff:
    """The changes from one commit to another, as far as the size limits allow."""

    files: tuple[FileDiff, ...]
    is_whole: bool
    """Whether all changes are shown, and none was left out because of a limit."""


def diff_of(repository: Repository, branch: Branch) -> Diff:
    """Return the changes of a worker.

    Raises:
        RepositoryError: Git failed, or needed too much time or memory.
    """
    return read_diff(repository, branch.base, branch.commit)


@lru_cache(maxsize=32)
def read_diff(repository: Repository, base: str, tip: str) -> Diff:
    """Return the changes from one commit to another.

    Raises:
        RepositoryError: Git failed, or needed too much time or memory.
    """
    data = patch(repository, base=base, tip=tip, limit=MOST_BYTES + 1)
    text = data[:MOST_BYTES].decode("utf-8", "replace")
    return parse_patch(text, is_whole=len(data) <= MOST_BYTES)


def parse_patch(text: str, *, is_whole: bool = True) -> Diff:
    """Split git's patch, which may be cut (`is_whole`) and whose content is untrusted, by files."""
    files: list[FileDiff] = []
    parser = _Parser()
    for number, raw in enumerate(text.split("\n")):
        if number >= MOST_LINES:
            return Diff(tuple(files), is_whole=False)
        if parser.is_head(raw):
            files.append(parser.begin(raw))
        elif files:
            parser.add(files[-1], raw)
    return Diff(tuple(files), is_whole=is_whole)


class _Parser:
    """Splits a patch into files, and numbers the lines of its hunks."""

    def __init__(self) -> None:
        self._old = self._new = 0
        self._in_hunk = False

    def is_head(self, raw: str) -> bool:
        # Every line of a hunk begins with a blank, a sign or a backslash.
        return raw.startswith("diff --git ")

    def begin(self, raw: str) -> FileDiff:
        self._in_hunk = False
        return FileDiff(_path(raw))

    def add(self, file: FileDiff, raw: str) -> None:
        hunk = _HUNK.match(raw)
        if hunk:
            self._old, self._new, self._in_hunk = int(hunk[1]), int(hunk[2]), True
            file.lines.append(Line("hunk", None, None, _clean(hunk[3])))
        elif self._in_hunk:
            file.lines.extend(self._numbered(file, raw))
        else:
            _note_head(file, raw)

    def _numbered(self, file: FileDiff, raw: str) -> Iterator[Line]:
        sign, text = raw[:1], _clean(raw[1:])
        if sign == "+":
            yield Line("add", None, self._new, text)
            self._new += 1
            file.insertions += 1
        elif sign == "-":
            yield Line("del", self._old, None, text)
            self._old += 1
            file.deletions += 1
        elif sign == " ":
            yield Line("same", self._old, self._new, text)
            self._old, self._new = self._old + 1, self._new + 1
        elif sign == "\\":
            yield Line("note", None, None, text.strip())


def _path(raw: str) -> str:
    """Return PATH from `diff --git a/PATH b/PATH`; the patch has no renames, so both are equal."""
    words = raw.removeprefix("diff --git ")
    half = (len(words) - 1) // 2
    path = words[half + 1 :].strip('"')
    return one_line(path.removeprefix("b/"), limit=400)


def _note_head(file: FileDiff, raw: str) -> None:
    if raw.startswith("new file"):
        file.change = "added"
    elif raw.startswith("deleted file"):
        file.change = "deleted"
    elif raw.startswith(("old mode", "new mode")):
        file.lines.append(Line("note", None, None, _clean(raw)))
    elif raw.startswith("Binary files"):
        file.lines.append(Line("note", None, None, "Binary file"))


def _clean(text: str) -> str:
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return lines(cut).replace("\n", "�")
