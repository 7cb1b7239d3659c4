"""What differs between two commits of a worker's, read in bounded pieces by a git with limits."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.errors import RepositoryError
from orchestrator.git.command import UNTRUSTED, Git, records
from orchestrator.git.repository import Repository

MOST_FILES = 10_000
"""Paths that are listed of one worker."""
MOST_BYTES = 512 * 1024
"""Bytes of the paths that are listed of one worker."""
# To count lines, git needs 45 times the size of a file of empty lines: 180 MiB at 4 MiB.
_LARGE_IS_BINARY = {"core.bigFileThreshold": "4m"}
_FORM = ("--no-renames", "--no-textconv", "--no-ext-diff", "--ignore-submodules=none")


@dataclass(frozen=True)
class Changes:
    """What differs between two commits."""

    files: tuple[str, ...] = ()
    """The first paths, at most MOST_FILES and MOST_BYTES of them."""
    total: int = 0
    """Number of all paths."""
    insertions: int = 0
    """Lines; of a file over 4 MiB none, as of a binary one."""
    deletions: int = 0
    notes: tuple[str, ...] = ()
    """What people are to know of it."""

    @property
    def is_whole(self) -> bool:
        """Whether all paths are listed."""
        return len(self.files) == self.total


def changes(repository: Repository, *, base: str, tip: str) -> Changes:
    """Compare two commits by git's word.

    Raises:
        RepositoryError: Git failed, also where it was not to count lines.
    """
    try:
        return _counted(_rows(_git(repository), "--numstat", base, tip))
    except RepositoryError as error:
        # More than git may take of memory or time: names are cheap.
        rows = ((0, 0, path) for path in changed_paths(repository, base=base, tip=tip))
        note = f"the lines that it changed were not counted ({error.message})"
        return _counted(rows, note)


def changed_paths(repository: Repository, *, base: str, tip: str) -> Iterator[str]:
    """Yield every path that differs between two commits, one after the other.

    Raises:
        RepositoryError: Git failed.
    """
    form = ("diff-tree", "-r", "-z", "--name-only", *_FORM)
    with _git(repository).reading(*form, base, tip) as output:
        for path in records(output, b"\0"):
            yield path.decode("utf-8", "backslashreplace")


def patch(repository: Repository, *, base: str, tip: str, limit: int) -> bytes:
    """Return the first `limit` bytes of `git diff` between two commits."""
    form = ("diff-tree", "-r", "-p", "--no-color", *_FORM)
    return _git(repository).listing(*form, base, tip, limit=limit, cut=True)


def _git(repository: Repository) -> Git:
    return repository.git.within(UNTRUSTED, _LARGE_IS_BINARY)


def _rows(git: Git, what: str, base: str, tip: str) -> Iterator[tuple[int, int, str]]:
    with git.reading("diff-tree", "-r", "-z", what, *_FORM, base, tip) as output:
        for row in records(output, b"\0"):
            added, removed, path = row.split(b"\t", 2)
            # `-` stands for a binary file.
            lines = (int(one) if one.isdigit() else 0 for one in (added, removed))
            yield *lines, path.decode("utf-8", "backslashreplace")  # type: ignore[misc]


def _counted(rows: Iterator[tuple[int, int, str]], *notes: str) -> Changes:
    files: list[str] = []
    total = insertions = deletions = 0
    room = MOST_BYTES
    for added, removed, path in rows:
        total, insertions, deletions = total + 1, insertions + added, deletions + removed
        room -= len(path)
        if room >= 0 and len(files) < MOST_FILES:
            files.append(path)
    if total > len(files):
        notes = (*notes, f"it changed {total:,} files, of which {len(files):,} are listed")
    return Changes(tuple(files), total, insertions, deletions, notes)
