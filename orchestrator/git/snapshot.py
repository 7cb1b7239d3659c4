"""Commit the uncommitted changes of a checkout without touching it."""

import os
import shutil
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from orchestrator.git.command import Git
from orchestrator.git.repository import Repository


def _leave_out(git: Git, parent: str, without: AbstractSet[str]) -> None:
    form = ("--cached", "-z", "--name-only", "--no-renames", "--diff-filter=A")
    new = git.run("diff-index", *form, parent).split(b"\0")
    paths = (path + b"\0" for path in new if os.fsdecode(path) in without)
    git.run("update-index", "--force-remove", "-z", "--stdin", stdin=b"".join(paths))


def snapshot(
    git_dir: Path, work_tree: Path, *, parent: str, message: str, scratch: Path,
    identity: tuple[str, str],
    config: Mapping[str, str] | None = None,
    without: AbstractSet[str] = frozenset(),
    excluded: Iterable[str] = (),
) -> str:  # fmt: skip
    """Commit the current files of a work tree; see `snapshot_checkout`.

    Args:
        git_dir: The git directory.
        work_tree: The directory with the files.
        parent: Parent of the new commit.
        message: Message of the new commit.
        scratch: Path of a temporary file to create and remove.
        identity: Name and e-mail address of author and committer.
        config: Additional git settings.
        without: Files that are left out if they are new.
        excluded: Directories that git does not read at all.
    """
    git = Git(git_dir, work_tree=work_tree, index=scratch, config=config)
    try:
        # A copy of the real index spares reading unchanged files again.
        if (git_dir / "index").exists():
            shutil.copyfile(git_dir / "index", scratch)
        else:
            git.run("read-tree", parent)
        sparse = ("--sparse",) if (git_dir / "info" / "sparse-checkout").exists() else ()
        paths = (".", *(f":(exclude,top,literal){path}" for path in excluded))
        git.run("add", "-A", *sparse, "--", *paths)
        if without:
            _leave_out(git, parent, without)
        tree = git.text("write-tree")
    finally:
        scratch.unlink(missing_ok=True)
    if tree == git.text("rev-parse", f"{parent}^{{tree}}"):
        return parent
    name, email = identity
    env = {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": email,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
    }
    commit = git.run("commit-tree", tree, "-p", parent, "-m", message, env=env)
    return commit.decode().strip()


def snapshot_checkout(repository: Repository, *, parent: str, message: str, scratch: Path) -> str:
    """Commit the current files of the user's checkout without changing its index or any ref.

    Args:
        repository: The user's repository.
        parent: Parent of the new commit.
        message: Message of the new commit.
        scratch: Path of a temporary file to create and remove.

    Returns:
        The new commit, or `parent` when the files do not differ.
    """
    return snapshot(
        repository.git_dir, repository.top, parent=parent, message=message, scratch=scratch,
        identity=repository.identity(), excluded=repository.nested(),
    )  # fmt: skip
