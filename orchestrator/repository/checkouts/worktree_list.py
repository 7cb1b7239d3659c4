"""List the worktrees of a repository, from the files that git itself reads.

`git worktree list` is not used: it does not know the main worktree of a separate git directory, git
2.39 and older print relative pointers unresolved, and only git 2.36 and later list paths with a
line break unambiguously.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import GitCommandError
from orchestrator.repository.git.command import Git
from orchestrator.repository.git_directory import git_dir_named_by, is_same, place_of, read_line
from orchestrator.repository.repository import Repository

_POINTER = "ref: "


@dataclass(frozen=True)
class ListedWorktree:
    """A worktree of the repository."""

    path: Path | None
    """The worktree; None if no file says where the main worktree is, as with a separate git
    directory.
    """
    git_dir: Path
    """The git directory with the worktree's HEAD and index."""

    is_present: bool
    """Whether the worktree is at its path: not moved, removed or on a disk that is not mounted."""

    @property
    def head(self) -> str | None:
        """Return the full name of the ref that is checked out; None if HEAD is detached."""
        # Git asks no repository format of a HEAD that it writes as a link or into a table of refs.
        line = read_line(self.git_dir / "HEAD") or ""
        if (self.git_dir / "HEAD").is_symlink() or line == f"{_POINTER}refs/heads/.invalid":
            try:
                return Git(self.git_dir).text("symbolic-ref", "--quiet", "HEAD")
            except GitCommandError:
                return None
        return line.removeprefix(_POINTER).strip() if line.startswith(_POINTER) else None


def list_linked_worktrees(common_dir: Path) -> list[ListedWorktree]:
    """Return the linked worktrees of a repository, those included whose directories are missing."""
    found = []
    for git_dir in sorted((common_dir / "worktrees").glob("*")):
        place = place_of(git_dir)
        found.append(ListedWorktree(place, git_dir, _leads_to(place, git_dir)))
    return found


def all_worktrees(repository: Repository) -> list[ListedWorktree]:
    """Return all worktrees: first that of the command, and no main worktree of a bare one."""
    current = ListedWorktree(repository.top, repository.git_dir, is_present=True)
    others = list_linked_worktrees(repository.common_dir)
    if _setting(repository.common_dir, "core.bare", "--type=bool") != "true":
        others.insert(0, _main(repository.common_dir))
    return [current, *(other for other in others if other.git_dir != current.git_dir)]


def _main(common_dir: Path) -> ListedWorktree:
    configured = _setting(common_dir, "core.worktree")
    if configured is not None:
        path = Path(os.path.normpath(common_dir / configured))
        return ListedWorktree(path, common_dir, path.is_dir())
    beside = common_dir.parent
    found = _leads_to(beside, common_dir)
    return ListedWorktree(beside if found else None, common_dir, found)


def _leads_to(worktree: Path, git_dir: Path) -> bool:
    """Return whether git finds this git directory when it runs in a worktree."""
    return is_same(git_dir_named_by(worktree) or worktree / ".git", git_dir)


def _setting(common_dir: Path, key: str, *options: str) -> str | None:
    try:
        return Git(common_dir).text("config", *options, "--get", key) or None
    except GitCommandError:
        return None
