"""Compare two commits of a worker with git, in a process with resource limits."""

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import IO

from orchestrator.base.errors import RepositoryError
from orchestrator.repository.git.command import Git, records
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.ref_names import other_meanings
from orchestrator.repository.repository import Repository

MOST_FILES = 10_000
"""Maximum number of changed paths that are listed for one worker."""
MOST_BYTES = 512 * 1024
"""Maximum number of bytes of all changed paths that are listed for one worker."""
# To count lines, git needs memory of 45 times the size of a file of empty lines: 180 MiB at 4 MiB.
# protection: lines-of-large-files-are-not-counted
_LARGE_IS_BINARY = {"core.bigFileThreshold": "4m"}
_REGULAR = "100"
"""First characters of the modes with which git records regular files."""
# protection: options-of-comparisons
_FORM = ("--no-renames", "--no-textconv", "--no-ext-diff", "--ignore-submodules=none")


@dataclass(frozen=True)
class Changes:
    """Difference between two commits."""

    files: tuple[str, ...] = ()
    """The first changed paths, at most MOST_FILES paths with MOST_BYTES bytes."""
    total: int = 0
    """Number of all changed paths, including those not listed."""
    insertions: int = 0
    """Number of added lines; files over 4 MiB and binary files count as none."""
    deletions: int = 0
    notes: tuple[str, ...] = ()
    """Messages for the user about changes that were not counted or listed."""

    @property
    def is_whole(self) -> bool:
        """Return whether all changed paths are listed."""
        return len(self.files) == self.total


def changes(repository: Repository, *, base: str, tip: str) -> Changes:
    """Return the difference between two commits.

    Raises:
        RepositoryError: Git failed to list the changed paths.
    """
    try:
        return _count(_rows(_git(repository), base, tip))
    # protection: paths-are-listed-if-lines-cannot-be-counted
    except RepositoryError as error:
        # Counting may exceed git's limits for memory or time; listing the names is cheap.
        rows = ((0, 0, path) for path in differing_paths(repository, base=base, tip=tip))
        note = f"the changed lines were not counted ({error.message})"
        return _count(rows, note)


def differing_paths(repository: Repository, *, base: str, tip: str) -> Iterator[str]:
    """Yield every path that differs between two commits.

    Raises:
        RepositoryError: Git failed.
    """
    form = ("diff-tree", "-r", "-z", "--name-only", *_FORM)
    with _git(repository).reading(*form, base, tip) as output:
        for path in records(output, b"\0"):
            yield path.decode("utf-8", "backslashreplace")


def paths_with_status(repository: Repository, *, base: str, tip: str) -> Iterator[tuple[str, str]]:
    """Yield each path that differs between two commits, with git's letter for the change.

    Raises:
        RepositoryError: Git failed.
    """
    form = ("diff-tree", "-r", "-z", "--name-status", *_FORM)
    with _git(repository).reading(*form, base, tip) as output:
        words = records(output, b"\0")
        for letter, path in zip(words, words, strict=False):
            yield letter.decode("ascii", "replace"), path.decode("utf-8", "backslashreplace")


def blobs(
    repository: Repository, *, base: str | None, tip: str
) -> Generator[tuple[str, str], None, None]:
    """Yield path and object id of every regular file of a commit.

    Args:
        repository: The repository.
        base: A commit; files that it contains unchanged are left out. None: no file is left out.
        tip: The commit.

    Raises:
        RepositoryError: Git failed.
    """
    if base is None:
        with _git(repository).reading("ls-tree", "-r", "-z", tip) as output:
            for entry in records(output, b"\0"):
                said, _, path = entry.partition(b"\t")
                mode, _, found = said.decode("ascii").split(" ")
                if mode.startswith(_REGULAR):
                    yield os.fsdecode(path), found
        return
    if base == tip:
        return
    with closing(versions(repository, base=base, tip=tip)) as rows:
        for name, _, (mode, found) in rows:
            if mode.startswith(_REGULAR):
                yield name, found


def versions(
    repository: Repository, *, base: str, tip: str
) -> Generator[tuple[str, tuple[str, str], tuple[str, str]], None, None]:
    """Yield each path that differs between two commits, with its mode and object id in both.

    Mode and id are zeros in a commit without the path.

    Raises:
        RepositoryError: Git failed.
    """
    form = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", *_FORM)
    with _git(repository).reading(*form, base, tip) as output:
        words = records(output, b"\0")
        for said, path in zip(words, words, strict=False):
            old_mode, mode, old, found, _ = said.decode("ascii").removeprefix(":").split(" ")
            yield os.fsdecode(path), (old_mode, old), (mode, found)


def patch(
    repository: Repository, *, base: str, tip: str, limit: int, renames: bool = False
) -> bytes:
    """Return the first `limit` bytes of the output of `git diff` between two commits.

    Args:
        repository: The repository.
        base: A commit.
        tip: The commit that is compared with `base`.
        limit: Maximum number of bytes.
        renames: Whether a moved file is one change, instead of a removed and an added file.
    """
    form = _RENAMES if renames else ()
    return _git(repository).listing(*_PATCH, *form, base, tip, limit=limit, cut=True)


@contextmanager
def patch_stream(
    repository: Repository, *, base: str, tip: str, is_whole: bool = False
) -> Iterator[IO[bytes]]:
    """Yield a stream with the output of `git diff` between two commits, which may have any length.

    Args:
        repository: The repository.
        base: A commit.
        tip: The commit that is compared with `base`.
        is_whole: Whether `git apply` can apply the patch: it has the content of binary files.

    Raises:
        RepositoryError: Git failed.
    """
    form = ("--binary", "--full-index") if is_whole else ()
    with _git(repository).reading(*_PATCH, *form, base, tip) as output:
        yield output


def stat_lines(repository: Repository, *, base: str, tip: str) -> Iterator[tuple[int, int, str]]:
    """Yield added lines, removed lines and path for each file that differs between two commits.

    Raises:
        RepositoryError: Git failed, perhaps because counting exceeds its limits.
    """
    return _rows(_git(repository), base, tip)


@dataclass(frozen=True)
class FileChange:
    """A file that differs between two commits."""

    path: str
    old_path: str
    """The file's path in the first commit; differs from `path` if the file was moved."""
    insertions: int
    deletions: int
    is_binary: bool
    sections: int = 1
    """Number of sections that a patch has for the file: two if its type changed, such as from a
    regular file to a link, as git then writes a removed and an added file.
    """


def file_changes(repository: Repository, *, base: str, tip: str) -> Iterator[FileChange]:
    """Yield each file that differs between two commits, a moved file once, in git's order.

    `patch` with `renames` has the `sections` of the same files in the same order.

    Raises:
        RepositoryError: Git failed, perhaps because counting exceeds its limits.
    """
    form = ("diff-tree", "-r", "-z", "--raw", "--numstat", *_FORM, *_RENAMES)
    retyped: set[bytes] = set()
    with _git(repository).reading(*form, base, tip) as output:
        words = records(output, b"\0")
        for row in words:
            # Git prints all rows of `--raw` before those of `--numstat`.
            if row.startswith(b":"):
                letter, name = row.rpartition(b" ")[2][:1], next(words, b"")
                if letter == b"T":
                    retyped.add(name)
                elif letter in (b"R", b"C"):
                    next(words, b"")
                continue
            added, removed, name = row.split(b"\t", 2)
            # Git ends the row of a moved file before its two paths.
            old, new = (name, name) if name else (next(words, b""), next(words, b""))
            yield FileChange(
                new.decode("utf-8", "backslashreplace"),
                old.decode("utf-8", "backslashreplace"),
                insertions=int(added) if added.isdigit() else 0,
                deletions=int(removed) if removed.isdigit() else 0,
                is_binary=added == b"-",
                sections=2 if new in retyped else 1,
            )


_PATCH = ("diff-tree", "-r", "-p", "--no-color", *_FORM)
# The limit bounds the number of pairs of files that git compares; exact copies are always found.
_RENAMES = ("--find-renames", "-l400")


def _git(repository: Repository) -> Git:
    # protection: memory-and-time-of-comparison-limited
    return repository.git.within(UNTRUSTED, _LARGE_IS_BINARY)


def _rows(git: Git, base: str, tip: str) -> Iterator[tuple[int, int, str]]:
    with git.reading("diff-tree", "-r", "-z", "--numstat", *_FORM, base, tip) as output:
        for row in records(output, b"\0"):
            added, removed, path = row.split(b"\t", 2)
            # Git prints `-` for a binary file.
            lines = (int(number) if number.isdigit() else 0 for number in (added, removed))
            yield *lines, path.decode("utf-8", "backslashreplace")  # type: ignore[misc]


def _count(rows: Iterator[tuple[int, int, str]], *notes: str) -> Changes:
    files: list[str] = []
    total = insertions = deletions = 0
    room = MOST_BYTES
    for added, removed, path in rows:
        total, insertions, deletions = total + 1, insertions + added, deletions + removed
        room -= len(path)
        # protection: number-of-listed-paths-limited
        # protection: total-length-of-listed-paths-limited
        if room >= 0 and len(files) < MOST_FILES:
            files.append(path)
    if total > len(files):
        notes = (*notes, f"{total:,} files changed, of which {len(files):,} are listed")
    return Changes(tuple(files), total, insertions, deletions, notes)


def branch_to_type(repository: Repository, branch: str) -> str:
    """Return the name of a branch for a git command that a user types: in full if ambiguous."""
    others = ("for-each-ref", "--format=%(refname)", *other_meanings(branch))
    return f"refs/heads/{branch}" if repository.git.text(*others) else branch
