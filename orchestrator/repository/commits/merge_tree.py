"""Merge two commits without a checkout, in a repository without any configuration.

The quarantine has no configuration, no attributes and no files, so that nothing a user or a worker
wrote can name a program to run: no merge driver, no filter, no `rerere`. The result may therefore
differ from the user's own `git merge`.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.repository.git.command import Git, version
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.git_directory import make_bare
from orchestrator.repository.repository import Repository

MINIMUM_VERSION = (2, 38)
"""First version of git that can merge without a checkout."""
_SINCE_BATCHES = (2, 39)
"""First version of git that can merge several pairs of commits in one process."""
MOST_SAID = 64 * 1024**2
"""Maximum size in bytes of git's messages about conflicts."""
# A delta of a few bytes can stand for gigabytes.
# protection: environment-of-merges
_FRUGAL = {"GIT_ALLOC_LIMIT": "256m"}
# Rename detection compares each new file with each deleted file: a second for a thousand of both.
# protection: rename-detection-limited
_BOUNDED = {"merge.renameLimit": "1000", "core.fsync": "none"}
_SIDE = re.compile(rb"~(?:[0-9a-f]{64}|[0-9a-f]{40})(?:_[0-9]+)?$")
"""Suffix that git appends to a name which is a file in one commit and a directory in the other."""
_CONFLICT = b"CONFLICT"
_MOST_PROCESSES = 4
"""Maximum number of processes that merge pairs of commits at the same time."""
_FEW = 8
"""Minimum number of pairs of commits that justify an additional process."""


@dataclass(frozen=True)
class Merged:
    """The result of merging two commits."""

    tree: str
    """Id of the merged tree. If there are conflicts, its files contain conflict markers."""
    paths: tuple[bytes, ...] = ()
    """The conflicting files, sorted; empty if there is no conflict."""
    kinds: tuple[str, ...] = ()
    """Git's names of the conflicts, such as `contents` or `modify/delete`."""


def require_git(purpose: str, instead: str) -> None:
    """Check that the installed git can merge without a checkout.

    Args:
        purpose: What the merge is for, as the end of an error message.
        instead: How to do without the merge, as the end of a hint.

    Raises:
        ConfigError: Git is too old.
    """
    found = version()
    if found < MINIMUM_VERSION:
        least, ours = (".".join(map(str, version)) for version in (MINIMUM_VERSION, found))
        raise ConfigError(
            f"git {ours} is too old {purpose}",
            key="git.too-old",
            hint=f"install git {least} or newer, or {instead}",
        )


def make_quarantine(repository: Repository, scratch: Path) -> Git:
    """Create a repository that can read the user's objects, but has none of the user's settings."""
    git_dir, files = scratch / "git", scratch / "files"
    make_bare(git_dir, object_format=repository.object_format)
    (git_dir / "objects" / "info" / "alternates").write_text(f"{repository.objects_dir}\n")
    cut = repository.shallow_commits()
    if cut:
        (git_dir / "shallow").write_text("".join(f"{commit}\n" for commit in sorted(cut)))
    # Git reads attributes from the work tree, or from its current directory if there is none; this
    # one is empty.
    files.mkdir()
    # protection: users-repository-settings-are-not-used
    # protection: users-files-are-not-read
    return Git(
        git_dir, work_tree=files, config=_BOUNDED, env=_FRUGAL, limits=UNTRUSTED, sealed=True
    )


@contextmanager
def quarantine(repository: Repository, scratch: Path) -> Iterator[Git]:
    """Yield git in a new, separate repository (a quarantine), and remove the repository afterwards.

    Args:
        repository: The user's repository, whose objects can be read.
        scratch: Directory to create; what a dead process left there is removed.
    """
    # protection: leftover-quarantine-of-merge-is-removed
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        yield make_quarantine(repository, scratch)
    finally:
        # protection: quarantine-of-merge-is-removed
        shutil.rmtree(scratch, ignore_errors=True)


def merge_commits(git: Git, ours: str, theirs: str, *, timeout: float) -> Merged:
    """Merge two commits in a quarantine; `timeout` is in seconds.

    Raises:
        GitCommandError: Git failed, or was killed after `timeout`.
        OutputTooLongError: The messages about conflicts are longer than MOST_SAID.
    """
    # protection: output-about-conflicts-limited
    said = git.listing(
        "merge-tree", "--write-tree", "--name-only", "-z", ours, theirs,
        limit=MOST_SAID, answers=(0, 1), timeout=timeout,
    )  # fmt: skip
    merged, _ = _parse_answer(said.split(b"\0"), 0)
    return merged


def merge_base(git: Git, ours: str, theirs: str) -> str | None:
    """Return the best common ancestor of two commits; None if they have none."""
    try:
        return git.text("merge-base", ours, theirs).partition("\n")[0]
    except GitCommandError as error:
        if error.returncode != 1:
            raise
        return None


def merge_pairs(
    git: Git, pairs: Sequence[tuple[str, str]], *, timeout: float
) -> list[Merged | None]:
    """Merge pairs of commits in the temporary repository `git`, within `timeout` seconds in all.

    Returns:
        A result for each pair; None where git failed or took too long.
    """
    width = max(1, min(_MOST_PROCESSES, os.cpu_count() or 1, len(pairs) // _FEW))
    with ThreadPoolExecutor(width) as pool:
        parts = pool.map(
            lambda start: _merge_batch(git, pairs[start::width], timeout=timeout), range(width)
        )
        found = [*parts]
    return [found[number % width][number // width] for number in range(len(pairs))]


def _merge_batch(
    git: Git, pairs: Sequence[tuple[str, str]], *, timeout: float
) -> list[Merged | None]:
    deadline = time.monotonic() + timeout
    try:
        if pairs and version() >= _SINCE_BATCHES:
            return [*_in_one_process(git, pairs, timeout=timeout / 2)]
    except RepositoryError:
        # One pair that git cannot merge ends the process: the others are merged one by one.
        pass
    found: list[Merged | None] = []
    for pair in pairs:
        left = deadline - time.monotonic()
        try:
            found.append(merge_commits(git, *pair, timeout=left) if left > 0 else None)
        except RepositoryError:
            found.append(None)
    return found


def _in_one_process(
    git: Git, pairs: Sequence[tuple[str, str]], *, timeout: float
) -> Iterator[Merged]:
    asked = "".join(f"{ours} {theirs}\n" for ours, theirs in pairs).encode()
    form = ("merge-tree", "--write-tree", "--name-only", "--stdin")
    with git.reading(*form, stdin=asked, timeout=timeout) as output:
        said = output.read(MOST_SAID + 1)
    words, at = said.split(b"\0"), 0
    for _ in pairs:
        if at + 2 >= len(words) or words[at] not in (b"0", b"1"):
            raise GitCommandError(form, 0, "git merged fewer commits than it was asked to")
        # A record begins with 1 for a clean merge, and with 0 for one with conflicts.
        merged, at = _parse_answer(words, at + 1)
        yield merged


def _parse_answer(words: Sequence[bytes], at: int) -> tuple[Merged, int]:
    """Parse an answer of `git merge-tree` from index `at`; return the result and the next index.

    Format: the tree, names of conflicting files, an empty name, messages (number of names, names,
    kind, text), and an empty word or git's advice about submodules. A clean merge has no messages.
    """
    tree = words[at].decode()
    end = words.index(b"", at + 1)
    found, kinds, at = set(words[at + 1 : end]), set(), end + 1
    while found and at < len(words) and words[at].isdigit():
        names = words[at + 1 : at + 1 + int(words[at])]
        kind = words[at + 1 + len(names)]
        if kind.startswith(_CONFLICT):
            found.update(names)
            kinds.add(kind.removeprefix(_CONFLICT).strip(b" ()").decode("utf-8", "replace"))
        at += 3 + len(names)
    paths = tuple(sorted({_SIDE.sub(b"", name) for name in found}))
    return Merged(tree, paths, tuple(sorted(kinds))), at + 1 if found else at
