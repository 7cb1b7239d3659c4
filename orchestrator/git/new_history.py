"""Read the new commits of a worker in a quarantine, and check that all of their objects exist."""

import hashlib
from dataclasses import dataclass

from orchestrator.errors import RepositoryError
from orchestrator.git.command import Git
from orchestrator.git.packed_work import HarvestRefusedError


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
    base_tree = _tree_of(git, base, tip=tip)
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
                raise HarvestRefusedError(f"the worker's work has more than {most} new commits")
    return NewHistory(
        base_tree=base_tree,
        roots=frozenset(roots),
        follows_base=follows,
        contains_empty_tree=has_empty,
    )


def _tree_of(git: Git, base: str, *, tip: str) -> str:
    """Return the id of the base commit's tree, and check that `tip` is a commit."""
    asked = f"{tip}\n{base}^{{tree}}\n".encode()
    form = "--batch-check=%(objecttype) %(objectname)"
    kind, tree = (line.split(" ") for line in git.text("cat-file", form, stdin=asked).split("\n"))
    # protection: tip-must-be-commit
    if kind != ["commit", tip]:
        raise HarvestRefusedError(
            "the worker's last commit cannot be imported: the object with its id is no commit"
        )
    if tree[0] != "tree":
        raise RepositoryError(f"the files of commit {base} are missing in the repository")
    return tree[1]
