"""Create a worker's worktree on the host, update it to the accepted commit, and remove it."""

import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.disarm import keep_off
from orchestrator.repository.checkouts.worktree_list import list_linked_worktrees
from orchestrator.repository.git_directory import git_dir_named_by, is_same, place_of, read_line
from orchestrator.repository.repository import WORKER_MARK, Repository

HALF_MADE = ".half-made-"
"""Suffix in the name of an incomplete state directory that was moved away; a number follows."""


def add_worktree(repository: Repository, spec: WorkerSpec) -> Worktree:
    """Create a worktree without files for the worker's branch.

    The caller holds the repository lock.

    Raises:
        RepositoryError: The directory exists, or git failed.
    """
    path = repository.top / spec.directory
    if spec.worktree_dir is not None:
        make_parent(path)
    # `check_out` writes the files later, without the repository lock.
    repository.git.run("worktree", "add", "--quiet", "--no-checkout", str(path), spec.branch)
    worktree = open_worktree(path, spec.branch)
    if spec.is_named:
        (worktree.git_dir / WORKER_MARK).touch()
    return worktree


def check_out(
    repository: Repository,
    worktree: Worktree,
    commit: str,
    *,
    owner: tuple[int, int] | None = None,
) -> None:
    """Write the files of a commit into a new worktree, and keep git from running any of them.

    The caller must not hold the repository lock.

    Args:
        repository: The repository.
        worktree: The worktree, which has no files.
        commit: The commit of its branch.
        owner: uid and gid of the files. Default: the caller's.

    Raises:
        RepositoryError: Git failed.
    """
    worktree.write_files(repository, commit, owner=owner)
    with repository.lock():
        # protection: programs-of-tree-disabled-in-worktree
        keep_off(repository, worktree.path, worktree.git_dir)


def make_parent(path: Path) -> None:
    """Create the parent directories of a worktree.

    Raises:
        RepositoryError: The directories could not be created, a symbolic link leads elsewhere, or
            the path of the worktree exists already.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        elsewhere = path.parent.resolve(strict=True) != path.parent
    except OSError as error:
        raise RepositoryError(
            f"cannot create {path.parent}: {error.strerror}", key="worktree.uncreatable"
        ) from error
    if elsewhere or os.path.lexists(path):
        what = "already exists" if not elsewhere else "is reached through a symbolic link"
        raise RepositoryError(
            f"{path} {what}: no worktree was created there", key="worktree.path-taken"
        )


def open_worktree(path: Path, branch: str, *, marked: bool = False) -> Worktree:
    """Return the worktree at a path, with its git directory.

    Args:
        path: The worktree.
        branch: Its branch.
        marked: Whether the worktree must have the marker file of this program, which a user's own
            worktree at a path made from a template lacks.

    Raises:
        RepositoryError: `path` is no worktree, or lacks the marker file.
    """
    # Git chooses the name of a worktree's git directory, and may add a number to it.
    git_dir = git_dir_named_by(path)
    if git_dir is None:
        raise RepositoryError(f"{path} is not a worktree", key="worktree.missing")
    if not git_dir.is_dir():
        raise RepositoryError(
            f"the git directory of {path} is not at {git_dir}",
            key="worktree.moved",
            hint=f"if the repository was moved or renamed: `git worktree repair {path}`",
        )
    # protection: copied-repository-leaves-originals-worktrees-alone
    if not is_same(place_of(git_dir) / ".git", path / ".git"):
        raise RepositoryError(
            f"{path} is a copy of {place_of(git_dir)}, which git records as the worktree",
            key="worktree.copy",
            hint=f"remove the copy; if the directory was moved: `git worktree repair {path}`",
        )
    # protection: users-worktree-is-not-mistaken-for-workers
    if marked and not (git_dir / WORKER_MARK).exists():
        raise RepositoryError(f"{path} is no longer a worker's worktree", key="worktree.foreign")
    return Worktree(path=path, branch=branch, git_dir=git_dir)


def ensure_worktree(
    repository: Repository, spec: WorkerSpec, *, owner: tuple[int, int] | None
) -> Worktree:
    """Return a worker's worktree; create it again if the user deleted it meanwhile.

    Args:
        repository: The repository.
        spec: The worker.
        owner: uid and gid of the files of a new worktree. None: the caller's.

    Raises:
        RepositoryError: The path exists and is no worktree.
    """
    path = repository.top / spec.directory
    if os.path.lexists(path):
        return open_worktree(path, spec.branch, marked=spec.is_named)
    with repository.lock():
        with suppress(GitCommandError):  # git may have forgotten the worktree, too
            remove_worktree(repository, path)
        worktree = add_worktree(repository, spec)
    check_out(repository, worktree, spec.ref, owner=owner)
    return worktree


def put_aside(repository: Repository, spec: WorkerSpec, directory: Path) -> None:
    """Move an incomplete worktree away after a crash. The caller holds the repository lock.

    The worktree may contain unknown files. So it is not deleted but moved, together with
    `directory`, the worker's incomplete state directory.

    Raises:
        OSError: A directory could not be moved.
        GitCommandError: Git could not remove its record of the worktree.
    """
    clear_place(repository, spec, directory)
    directory.rename(_free(directory))


def put_worktree_aside(repository: Repository, spec: WorkerSpec, directory: Path) -> None:
    """Move an incomplete worktree into a new directory beside a worker's state directory.

    The caller holds the repository lock. Unlike `put_aside`, this does not move `directory`, the
    state directory itself.

    Raises:
        OSError: The directory could not be moved.
        GitCommandError: Git could not remove its record of the worktree.
    """
    aside = _free(directory)
    if (repository.top / spec.directory).exists():
        aside.mkdir()
    clear_place(repository, spec, aside)


def _free(directory: Path) -> Path:
    paths = (directory.with_name(f"{directory.name}{HALF_MADE}{number}") for number in count(1))
    return next(path for path in paths if not path.exists())


def clear_place(repository: Repository, spec: WorkerSpec, into: Path) -> None:
    """Move whatever exists at a worktree's path away. The caller holds the repository lock.

    Raises:
        OSError: The directory could not be moved.
        GitCommandError: Git could not remove its record of the worktree.
    """
    path = repository.top / spec.directory
    if path.exists():
        shutil.move(path, into / path.name)
    if any(worktree.path == path for worktree in list_linked_worktrees(repository.common_dir)):
        _make_absolute(repository, path)
        # --force twice, because git locks a worktree until it is complete.
        repository.git.run("worktree", "remove", "--force", "--force", str(path))


def remove_worktree(repository: Repository, path: Path) -> None:
    """Remove a worktree and git's record of it. The caller holds the repository lock.

    Raises:
        GitCommandError: The worktree could not be removed.
    """
    remove = ("worktree", "remove", "--force")
    _make_absolute(repository, path)
    try:
        repository.git.run(*remove, str(path))
    except GitCommandError as error:
        # A `worktree add` that was killed left this lock. A worktree that the user locked is kept.
        if "lock reason: initializing" not in error.stderr:
            raise
        repository.git.run(*remove, "--force", str(path))


def _make_absolute(repository: Repository, path: Path) -> None:
    """Replace a relative pointer, with which git before 2.48 does not remove a worktree."""
    for worktree in list_linked_worktrees(repository.common_dir):
        if worktree.path == path and not (read_line(worktree.git_dir / "gitdir") or "/").startswith(
            "/"
        ):
            (worktree.git_dir / "gitdir").write_text(f"{path / '.git'}\n")
