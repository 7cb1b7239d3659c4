"""Read the files in which a container hands over a worker's commits, and the commits themselves."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.base.errors import OrchestratorError, RepositoryError
from orchestrator.base.files.safe_open import NotRegularError, open_regular
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import Git

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class HarvestRefusedError(OrchestratorError):
    """A worker's commits break a rule; none of them was imported."""


@dataclass(frozen=True)
class Harvested:
    """The result of importing a worker's commits."""

    tip: str
    """The commit that the worker's branch points at."""
    notes: tuple[str, ...]
    """Messages for the user about work that was left out or changed."""
    kept_refs: tuple[str, ...] = ()
    """Refs of the worker's commits that are not on its branch."""
    refused: str | None = None
    """Why some of the commits were refused; None if all were imported."""


def read_tip(out: Path) -> str:
    """Return the id of the last commit that the packing container handed over.

    Raises:
        HarvestRefusedError: The file does not contain a commit id.
    """
    tip = _read_text(out / "tip", 100)
    # protection: tip-must-be-object-id
    if not _OBJECT_ID.fullmatch(tip):
        raise HarvestRefusedError(
            "the worker's work was not handed over: the file `tip` has no commit id",
            key="work.not-handed-over",
        )
    return tip


def open_handed_over(path: Path) -> BinaryIO:
    """Open a file that the packing container handed over, without following a link.

    Raises:
        HarvestRefusedError: The file is missing or not a regular file.
    """
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise HarvestRefusedError(
            f"the worker's work was not handed over: `{path.name}` is not a regular file",
            key="work.not-handed-over",
        ) from error
    except OSError as error:
        raise HarvestRefusedError(
            f"the worker's work was not handed over: the file `{path.name}` is missing",
            key="work.not-handed-over",
        ) from error


def _read_text(path: Path, limit: int) -> str:
    with open_handed_over(path) as file:
        # protection: length-of-read-files-limited
        return file.read(limit).decode("utf-8", "replace").strip()


def read_notes(out: Path) -> tuple[str, ...]:
    """Return the packing container's messages about work that was left out."""
    try:
        notes = json.loads(_read_text(out / "notes", 64 * 1024))
    except HarvestRefusedError:
        return ()
    # protection: deeply-nested-notes-are-refused
    except (ValueError, RecursionError):
        notes = None
    # protection: notes-must-be-list
    if not isinstance(notes, list):
        return (
            "the notes on the worker's packed work are unreadable: files may have been left out",
        )
    # protection: notes-are-short-texts
    return tuple(one_line(note) for note in notes[:20] if isinstance(note, str))


@dataclass(frozen=True, kw_only=True)
class NewHistory:
    """The new commits of a worker."""

    base_tree: str
    """Object id of the top directory of the base commit."""
    roots: frozenset[str]
    """Object id of the top directory of each new commit."""
    follows_base: bool
    """Whether the base is an ancestor of the last new commit, or that commit itself."""
    contains_empty_tree: bool
    """Whether a directory of the new commits is empty. Git knows the empty tree without its object,
    but `git fsck` reports that the object is missing.
    """


def read_history(git: Git, base: str, tip: str, *, most: int) -> NewHistory:
    """Read all commits that the commit `tip` adds to the commit `base`.

    Args:
        git: Git in the quarantine.
        base: The commit that the worker started from.
        tip: The object that the worker handed over as its last commit.
        most: Largest number of new commits.

    Raises:
        HarvestRefusedError: The tip is no commit, or there are more than `most` new commits.
        RepositoryError: An object of the base, or one that the new commits need, is missing.
    """
    asked = f"{tip}\n{base}^{{tree}}\n".encode()
    form = "--batch-check=%(objecttype) %(objectname)"
    kind, tree = (line.split(" ") for line in git.text("cat-file", form, stdin=asked).split("\n"))
    # protection: tip-must-be-commit
    if kind != ["commit", tip]:
        raise HarvestRefusedError(
            "the worker's last commit cannot be imported: the object with its id is no commit",
            key="work.no-commit",
        )
    if tree[0] != "tree":
        raise RepositoryError(
            f"the files of commit {base} are missing in the repository", key="commit.files-missing"
        )
    empty_tree = (
        hashlib.new("sha256" if len(tip) == 64 else "sha1", b"tree 0\0").hexdigest().encode()
    )
    parent, roots = base.encode(), set[str]()
    count, has_empty, follows = 0, False, tip == base
    # This also checks connectivity: every object that the new commits need is in the pack or was
    # given to the worker.
    listing = ("rev-list", "--objects", "--no-object-names", "--format=%T %P", tip, f"^{base}")
    with git.reading(*listing) as lines:
        # All lines are read: git would be killed at the end of the block, without an error.
        for line in lines:
            if line.startswith(b"commit "):
                count += 1
                root, _, parents = next(lines, b"").rstrip().partition(b" ")
                # protection: trees-of-every-commit-are-checked
                roots.add(root.decode("ascii"))
                # If the base is an ancestor of the tip, it is the parent of a new commit.
                follows = follows or parent in parents
            has_empty = has_empty or line.rstrip() == empty_tree
            # protection: number-of-new-commits-limited
            if count > most:
                raise HarvestRefusedError(
                    f"the worker's work has more than {most} new commits",
                    key="work.too-many-commits",
                )
    return NewHistory(
        base_tree=tree[1],
        roots=frozenset(roots),
        follows_base=follows,
        contains_empty_tree=has_empty,
    )
