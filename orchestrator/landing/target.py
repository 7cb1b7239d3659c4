"""The user's branch into which workers' branches are merged, and whether it can be changed now."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.git.checkout import Worktree
from orchestrator.git.repository import BRANCHES, Repository
from orchestrator.text.sanitize import one_line

_HEADS = "refs/heads/"
_MOST = 10_000
"""Maximum size in bytes of files in a git directory that name a branch."""
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase or `git am`",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert of several commits",
}
"""Files and directories that git operations create in a git directory, with the name of the
operation.
"""
_NAMES = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""Files in a git directory that name the branch to which an operation, such as a rebase, returns.
"""


class NotFitError(RepositoryError):
    """The branch or its checkout cannot be changed now; nothing was changed."""


@dataclass(frozen=True)
class Target:
    """The user's branch into which workers' branches are merged."""

    branch: str
    commit: str
    checkout: Worktree | None
    """The worktree in which the branch is checked out; None if it is not checked out."""

    @property
    def ref(self) -> str:
        """Return the full name of the branch."""
        return f"{_HEADS}{self.branch}"


def find_target(repository: Repository, into: str | None) -> Target:
    """Return the branch named `into`, or else the branch that is checked out.

    Raises:
        ConfigError: There is no such branch, or it belongs to a worker.
        NotFitError: The branch is checked out more than once.
    """
    ref = _wanted(repository, into)
    branch = ref.removeprefix(_HEADS)
    if ref.startswith(BRANCHES) or ref in repository.worker_branches():
        raise ConfigError(
            f"`{branch}` cannot be merged into: it is the branch of a worker",
            hint="name a branch of your own",
        )
    commit = repository.commit_of(ref)
    if commit is None:
        raise ConfigError(f"there is no branch `{one_line(branch)}`", hint=_hint(repository, ref))
    return Target(branch, commit, _checkout(repository, branch))


def _wanted(repository: Repository, into: str | None) -> str:
    if into is not None:
        return f"{_HEADS}{into.removeprefix(_HEADS)}"
    return f"{_HEADS}{checked_out_branch(repository)}"


def checked_out_branch(repository: Repository) -> str:
    """Return the name of the branch that is checked out, without `refs/heads/`.

    Raises:
        ConfigError: HEAD is detached.
    """
    try:
        return repository.git.text("symbolic-ref", "--quiet", "HEAD").removeprefix(_HEADS)
    except GitCommandError as error:
        raise ConfigError(
            "no branch is checked out", hint="name the branch to merge into with `--into`"
        ) from error


def _hint(repository: Repository, ref: str) -> str:
    branch = ref.removeprefix(_HEADS)
    is_possible = branch != "HEAD" and branch[:1] != "-"
    if is_possible and repository.git.succeeds("check-ref-format", ref):
        return f"`git branch {branch}` creates the branch"
    return "`git branch` lists the branches"


def _checkout(repository: Repository, branch: str) -> Worktree | None:
    """Return the worktree in which a branch is checked out; None if it is not checked out."""
    found = [
        Worktree(path, branch, git_dir)
        for path, git_dir in _worktrees(repository)
        if _read(git_dir / "HEAD") == f"ref: {_HEADS}{branch}"
    ]
    if len(found) > 1:
        places = " and ".join(str(one.path) for one in found[:2])
        raise NotFitError(
            f"`{branch}` is checked out more than once: in {places}",
            hint="check out another branch in one of these worktrees",
        )
    return found[0] if found else None


def _worktrees(repository: Repository) -> Iterator[tuple[Path, Path]]:
    """Yield the path and the git directory of every worktree of the repository."""
    yield repository.top, repository.git_dir
    listed = repository.git.run("worktree", "list", "--porcelain", "-z").split(b"\0")
    paths = [Path(os.fsdecode(one[9:])) for one in listed if one.startswith(b"worktree ")]
    git_dirs = {_read(path / "gitdir"): path for path in _linked(repository)}
    for number, path in enumerate(paths):
        # The first worktree is the main one, whose git directory is the repository's own.
        git_dir = git_dirs.get(str(path / ".git")) if number else repository.common_dir
        if git_dir is not None and git_dir != repository.git_dir and (path / ".git").exists():
            yield path, git_dir


def _linked(repository: Repository) -> list[Path]:
    return sorted((repository.common_dir / "worktrees").glob("*"))


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(_MOST)).strip()
    except OSError:
        return None


def check_fit(repository: Repository, target: Target) -> None:
    """Check that the branch has not moved, and that no git operation is in progress.

    Raises:
        NotFitError: The branch or its checkout cannot be changed now.
    """
    if repository.commit_of(target.ref) != target.commit:
        raise NotFitError(
            f"another command changed `{target.branch}` meanwhile: nothing was changed",
            hint="run the command again",
        )
    if target.checkout != _checkout(repository, target.branch):
        raise NotFitError(
            f"another command changed which worktree has `{target.branch}` checked out: "
            "nothing was changed",
            hint="run the command again",
        )
    for git_dir in [repository.common_dir, *_linked(repository)]:
        if {_read(git_dir / name) for name in _NAMES} & {target.ref, target.branch}:
            raise NotFitError(
                f"a rebase or bisection of `{target.branch}` is under way: nothing was changed",
                hint="finish the rebase or bisection first",
            )
    if target.checkout is not None:
        _check_idle(target.checkout)


def _check_idle(checkout: Worktree) -> None:
    for name, operation in _UNDER_WAY.items():
        if (checkout.git_dir / name).exists():
            raise NotFitError(
                f"{operation} is under way in {checkout.path}: nothing was changed",
                hint="finish or abort the operation first: see `git status`",
            )
    if (checkout.git_dir / "index.lock").exists():
        raise NotFitError(
            f"another git command is changing the index of {checkout.path}: nothing was changed",
            hint="wait for that command's end; if it died, remove "
            f"{checkout.git_dir / 'index.lock'}",
        )
