"""Commit uncommitted changes without changing the checkout's files, index or branch."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.checkouts.in_progress import check_settled
from orchestrator.repository.git.command import Git
from orchestrator.repository.programs import Use
from orchestrator.repository.repository import Repository

_UNREADABLE = re.compile(r"open\(\"(.*)\"\): Permission denied")


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A work tree with the files that it has on disk at this moment."""

    git_dir: Path
    path: Path
    scratch: Path
    """Path of a temporary file to create and remove."""
    config: Mapping[str, str] | None = None
    """Additional git settings."""
    use: Use | None = None
    """Whether the user's filters run, as in the user's own `git add`."""


@dataclass(frozen=True, kw_only=True)
class NewCommit:
    """Parent, message and author of a commit to create."""

    parent: str
    message: str
    identity: tuple[str, str]
    """Name and e-mail address of the author."""


def snapshot_checkout(repository: Repository, *, parent: str, message: str, scratch: Path) -> str:
    """Commit the current files of the user's checkout without changing its index or any ref.

    Args:
        repository: The repository.
        parent: Parent of the new commit.
        message: The message of the new commit.
        scratch: Path of a temporary file to create and remove.

    Returns:
        The new commit, or `parent` if nothing differs.

    Raises:
        RepositoryError: The files are a state in the middle of a git operation, or git failed.
    """
    check_settled(repository)
    top, use = repository.top, Use.ADD
    tree = Tree(git_dir=repository.git_dir, path=top, scratch=scratch, use=use)
    commit = NewCommit(parent=parent, message=message, identity=repository.identity())
    return snapshot(tree, commit, excluded=repository.repositories_inside())


def snapshot(
    tree: Tree,
    commit: NewCommit,
    *,
    without: AbstractSet[str] = frozenset(),
    excluded: Iterable[str] = (),
) -> str:
    """Commit the current files of a work tree; return the parent if nothing differs.

    Args:
        tree: The work tree.
        commit: Message, parent and author of the new commit.
        without: New files of the tree that are left out.
        excluded: Paths that are not read at all.
    """
    git_dir, scratch, parent = tree.git_dir, tree.scratch, commit.parent
    git = Git(git_dir, work_tree=tree.path, index=scratch, config=tree.config, use=tree.use)
    try:
        # A copy of the real index spares reading unchanged files again.
        if (git_dir / "index").exists():
            shutil.copyfile(git_dir / "index", scratch)
        else:
            git.run("read-tree", parent)
        sparse = ("--sparse",) if (git_dir / "info" / "sparse-checkout").exists() else ()
        paths = (".", *(f":(exclude,top,literal){path}" for path in excluded))
        _add(git, (*sparse, "--", *paths))
        if without:
            form = ("--cached", "-z", "--name-only", "--no-renames", "--diff-filter=A")
            new = git.run("diff-index", *form, parent).split(b"\0")
            names = (name + b"\0" for name in new if os.fsdecode(name) in without)
            git.run("update-index", "--force-remove", "-z", "--stdin", stdin=b"".join(names))
        written = git.text("write-tree")
    finally:
        scratch.unlink(missing_ok=True)
    if written == git.text("rev-parse", f"{parent}^{{tree}}"):
        return parent
    name, email = commit.identity
    env = {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }
    made = git.run("commit-tree", written, "-p", parent, "-m", commit.message, env=env)
    return made.decode().strip()


def _add(git: Git, arguments: Iterable[str]) -> None:
    try:
        git.run("add", "-A", *arguments)
    except GitCommandError as error:
        if (found := _UNREADABLE.search(error.stderr)) is None:
            raise
        raise RepositoryError(
            f"uncommitted changes cannot be read: `{one_line(found[1])}`: permission denied",
            key="changes.unreadable",
            hint="make the file readable for you, or let git ignore it",
        ) from error
