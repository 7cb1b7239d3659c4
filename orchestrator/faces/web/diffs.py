"""The changes between two commits, as files, hunks and numbered lines for a page."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby, islice, zip_longest
from typing import Any, Literal

from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.faces.web.ansi import Run
from orchestrator.faces.web.highlight import Spans, highlight
from orchestrator.faces.web.view import View
from orchestrator.repository.commits.changes import FileChange, file_changes, patch
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, read_branches
from orchestrator.state.record.worker_view import WorkerView

MOST_BYTES = 1024**2
"""Maximum number of bytes of a patch that a page shows."""
MOST_LINES = 6000
"""Maximum number of lines of a patch that a page shows."""
MOST_FILES = 1000
"""Maximum number of changed files that a page lists."""
_LONGEST = 2000
"""Maximum number of characters of a patch's line that a page shows."""
_MANY = 400
"""Number of changed lines above which a file's changes are hidden until a click."""
_LONGEST_COMPARED = 400
"""Maximum number of characters of a line in which a page marks what changed."""
_MOST_WORDS = 128
"""Maximum number of words of a line in which a page marks what changed."""
_MOST_PAIRS = 2_000_000
"""Maximum number of pairs of words that are compared for one page: the worst lines need time in
proportion to the third power of their words.
"""
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+(\d{1,9})(?:,\d+)? @@ ?(.*)")
_WORDS = re.compile(r"\w+|\s+|.")
Mark = Literal["add", "del", "same", "hunk", "note"]


@dataclass(frozen=True)
class Line:
    """A line of a patch, with its numbers in the old and in the new file."""

    mark: Mark
    old: int | None
    new: int | None
    runs: tuple[Run, ...]
    """The text, as spans with CSS classes."""

    @property
    def text(self) -> str:
        """The text without classes."""
        return "".join(run.text for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """The changes of one file."""

    path: str
    old_path: str
    """The path before the change; differs from `path` if the file was moved."""
    change: str
    """`modified`, `added`, `deleted` or `renamed`."""
    insertions: int
    deletions: int
    is_cut: bool = False
    """Whether lines of the file are left out because of the page's limits."""
    lines: tuple[Line, ...] = ()

    @property
    def is_large(self) -> bool:
        """Whether the page hides the file's changes until a click."""
        return self.insertions + self.deletions > _MANY

    @property
    def sides(self) -> Iterator[tuple[Line | None, Line | None]]:
        """The lines in two columns: removed beside added ones, each other line in both."""
        for removed, added in _blocks(self.lines):
            yield from zip_longest(removed, added)


@dataclass(frozen=True)
class Diff:
    """The changes from one commit to another, as far as the size limits allow."""

    files: tuple[FileDiff, ...]
    is_whole: bool
    """Whether all changes are shown, and none was left out because of a limit."""
    total: int = 0
    """Number of all changed files, including those that are not listed."""
    insertions: int = 0
    deletions: int = 0


@dataclass(frozen=True)
class TreeRow:
    """A row of the list of changed files: a directory, or a file with its number on the page."""

    depth: int
    name: str
    file: FileDiff | None = None
    number: int = 0


def diff_of(repository: Repository, branch: Branch) -> Diff:
    """Return the changes of a worker.

    Raises:
        RepositoryError: Git failed, or needed too much time or memory.
    """
    return read_diff(repository, branch.base, branch.commit)


def worker_diff(view: View, worker: WorkerView) -> Diff:
    """Return the changes of a worker since it started; none while it runs.

    Raises:
        OrchestratorError: Its commits are gone, or git failed.
    """
    if worker.result is None:
        return Diff((), is_whole=True)
    run = read_branches(view.repository, view.snapshot.run_id, (worker.worker_id,))
    return diff_of(view.repository, run.branches[0])


@lru_cache(maxsize=32)
def read_diff(repository: Repository, base: str, tip: str) -> Diff:
    """Return the changes from one commit to another.

    Raises:
        RepositoryError: Git failed, or needed too much time or memory.
    """
    listed: list[FileChange] = []
    total = insertions = deletions = 0
    for change in file_changes(repository, base=base, tip=tip):
        total, insertions, deletions = (
            total + 1,
            insertions + change.insertions,
            deletions + change.deletions,
        )
        if total <= MOST_FILES:
            listed.append(change)
    data = patch(repository, base=base, tip=tip, limit=MOST_BYTES + 1, renames=True)
    text = data[:MOST_BYTES].decode("utf-8", "replace")
    files, has_more = parse_patch(text, listed, is_whole=len(data) <= MOST_BYTES)
    whole = total == len(files) and not has_more and not any(file.is_cut for file in files)
    return Diff(_colour(files), whole, total, insertions, deletions)


def parse_patch(
    text: str, changed: Sequence[FileChange], *, is_whole: bool = True
) -> tuple[tuple[FileDiff, ...], bool]:
    """Return the changed files with the lines of git's patch, which is untrusted.

    Args:
        text: The patch, in which the files stand in the order of `changed`.
        changed: The changed files.
        is_whole: Whether the patch was not cut.

    Returns:
        The files, and whether the patch has more sections than belong to them.
    """
    # Every line of a hunk begins with a blank, a sign or a backslash.
    raw = text.split("\n")
    heads = [number for number, line in enumerate(raw) if line.startswith("diff --git ")]
    parts = zip(heads, [*heads[1:], len(raw)], strict=False)
    room, files = MOST_LINES, []
    for change in changed:
        mine = [*islice(parts, change.sections)]
        cut = len(mine) < change.sections or (mine[-1][1] == len(raw) and not is_whole)
        sections = []
        for start, end in mine:
            sections.append(raw[start:end][:room])
            cut = cut or end - start > room
            room -= len(sections[-1])
        files.append(_file(change, sections, is_cut=cut))
    return tuple(files), next(parts, None) is not None


def _file(file: FileChange, sections: Sequence[Sequence[str]], *, is_cut: bool) -> FileDiff:
    change = "renamed" if file.path != file.old_path else "modified"
    shown = [Line("note", None, None, _plain("Binary file"))] if file.is_binary else []
    for raw in sections:
        head = next((i for i, line in enumerate(raw) if line.startswith("@@ ")), len(raw))
        for line in raw[:head]:
            is_all = line.startswith(("new file", "deleted file"))
            if is_all and file.sections == 1:
                change = "added" if line.startswith("new") else "deleted"
            elif is_all or line.startswith(("old mode", "new mode", "similarity index")):
                shown.append(Line("note", None, None, _plain(_clean(line))))
        shown += _number_lines(raw[head:])
    return FileDiff(
        path=one_line(file.path, limit=400),
        old_path=one_line(file.old_path, limit=400),
        change=change,
        insertions=file.insertions,
        deletions=file.deletions,
        is_cut=is_cut,
        lines=tuple(shown),
    )


def _number_lines(raw: Sequence[str]) -> Iterator[Line]:
    old = new = 0
    for line in raw:
        sign, text = line[:1], _plain(_clean(line[1:]))
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
            yield Line("hunk", None, None, _plain(_clean(hunk[3])))
        elif sign == "+":
            yield Line("add", None, new, text)
            new += 1
        elif sign == "-":
            yield Line("del", old, None, text)
            old += 1
        elif sign == " ":
            yield Line("same", old, new, text)
            old, new = old + 1, new + 1
        elif sign == "\\":
            yield Line("note", None, None, text)


def tree_of(files: Sequence[FileDiff]) -> Iterator[TreeRow]:
    """Yield the files below their directories; directories with only one entry share a row."""
    root: dict[str, Any] = {}
    for number, file in enumerate(files, 1):
        *folders, name = file.path.split("/")
        node = root
        for folder in folders:
            node = node.setdefault(f"{folder}/", {})
        node[name] = TreeRow(0, name, file, number)
    return _rows(root, 0)


def _rows(node: Mapping[str, Any], depth: int) -> Iterator[TreeRow]:
    for name, child in node.items():
        if isinstance(child, TreeRow):
            yield replace(child, depth=depth)
            continue
        while len(child) == 1 and isinstance(only := next(iter(child.values())), dict):
            name, child = f"{name}{next(iter(child))}", only
        yield TreeRow(depth, name)
        yield from _rows(child, depth + 1)


def _blocks(rows: Iterable[Line]) -> Iterator[tuple[list[Line], list[Line]]]:
    """Yield runs of removed lines with the added lines that follow, and each other line alone."""
    removed, added = list[Line](), list[Line]()
    for line in rows:
        if line.mark == "del" and not added:
            removed.append(line)
        elif line.mark == "add":
            added.append(line)
        else:
            if removed or added:
                yield removed, added
            removed, added = ([line], []) if line.mark == "del" else ([], [])
            if line.mark != "del":
                yield [line], [line]
    if removed or added:
        yield removed, added


def _colour(files: Sequence[FileDiff]) -> tuple[FileDiff, ...]:
    """Return the files with the syntax of their lines, and with marks at changed words."""
    sources = [(file.path.rpartition("/")[2], "\n".join(line.text for line in file.lines
                if line.mark in marks)) for file in files for marks in _SIDES]  # fmt: skip
    found = iter(highlight(sources) or [[]] * len(sources))
    room = _Room()
    return tuple(
        replace(file, lines=_with_syntax(file, next(found), next(found), room)) for file in files
    )


@dataclass
class _Room:
    """Number of pairs of words that may still be compared for a page."""

    pairs: int = _MOST_PAIRS

    def has(self, first: Sequence[str], second: Sequence[str]) -> bool:
        # protection: words-of-long-lines-are-not-compared
        if max(len(first), len(second)) > _MOST_WORDS:
            return False
        self.pairs -= len(first) * len(second)
        # protection: compared-words-of-page-limited
        return self.pairs >= 0


def _with_syntax(
    file: FileDiff, old: Sequence[Spans], new: Sequence[Spans], room: _Room
) -> tuple[Line, ...]:
    sides = (iter(old), iter(new))
    shown: list[Line] = []
    for line in file.lines:
        spans = [next(side, ()) for side, marks in zip(sides, _SIDES, strict=True)
                 if line.mark in marks]  # fmt: skip
        if spans:
            runs, at = list[Run](), 0
            for look, size in spans[-1]:
                runs.append(Run(look, line.text[at : at + size]))
                at += size
            rest = [Run("", line.text[at:])] if at < len(line.text) else []
            line = replace(line, runs=(*runs, *rest))
        shown.append(line)
    changed: dict[int, tuple[Run, ...]] = {}
    for removed, added in _blocks(shown):
        for pair in zip(removed, added, strict=False):
            changed |= {id(line): runs for line, runs in _compare(*pair, room)}
    return tuple(replace(line, runs=changed.get(id(line), line.runs)) for line in shown)


def _compare(removed: Line, added: Line, room: _Room) -> Iterator[tuple[Line, tuple[Run, ...]]]:
    """Yield two lines with marks at the words that differ, if the lines have words in common."""
    if removed is added or max(len(removed.text), len(added.text)) > _LONGEST_COMPARED:
        return
    words = [_WORDS.findall(line.text) for line in (removed, added)]
    if not room.has(*words):
        return
    matcher = SequenceMatcher(a=words[0], b=words[1], autojunk=False)
    same = [block for block in matcher.get_matching_blocks() if block.size]
    if sum(len("".join(words[0][match.a : match.a + match.size]).strip()) for match in same) < 3:
        return
    for line, parts, side in ((removed, words[0], 0), (added, words[1], 1)):
        kept = {block[side] + i for block in same for i in range(block.size)}
        marks = [number not in kept for number, word in enumerate(parts) for _ in word]
        yield line, tuple(_mark(line, marks))


def _mark(line: Line, marks: Sequence[bool]) -> Iterator[Run]:
    at = 0
    for run in line.runs:
        for is_changed, group in groupby(marks[at : at + len(run.text)]):
            size = len(list(group))
            yield Run(
                f"{run.look} w".strip() if is_changed else run.look, line.text[at : at + size]
            )
            at += size


_SIDES = (("same", "del"), ("same", "add"))


def _plain(text: str) -> tuple[Run, ...]:
    return (Run("", text),) if text else ()


def _clean(text: str) -> str:
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return lines(cut).replace("\n", "�")


def diff_values(diff: Diff, query: Mapping[str, str]) -> dict[str, object]:
    """Return the template variables of a diff; the query's `view` is `split` for two columns."""
    return {
        "diff": diff,
        "tree": tree_of(diff.files),
        "is_split": query.get("view") == "split",
        "unlisted": diff.total - len(diff.files),
    }
