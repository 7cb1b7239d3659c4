"""Create git directories quickly, and read files of git directories."""

import os
from pathlib import Path

from orchestrator.base.files.safe_open import open_regular

_LONGEST_POINTER = 10_000
"""Maximum size in bytes of files that name a git directory, a worktree or a branch."""


def make_bare(git_dir: Path, *, object_format: str, branch: str = "main") -> None:
    """Create an empty bare repository.

    This is faster than `git init`. Every worker needs three repositories, and creating them with
    `git init` would take as long as all other steps of a worker's start together.

    Args:
        git_dir: Directory to create.
        object_format: `sha1` or `sha256`.
        branch: The branch that HEAD points at.
    """
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    # Written only when needed: some other readers of git directories fail on extensions.
    extra = f"1\n[extensions]\n\tobjectFormat = {object_format}\n"
    version = "0\n" if object_format == "sha1" else extra
    (git_dir / "config").write_text(f"[core]\n\tbare = true\n\trepositoryformatversion = {version}")


def shallow_commits(common_dir: Path) -> frozenset[str]:
    """Return the commits of a shallow clone whose parents are missing."""
    file = common_dir / "shallow"
    return frozenset(file.read_text().split()) if file.exists() else frozenset()


def read_line(path: Path) -> str | None:
    """Return a small file's text without the final line break; None if it cannot be read."""
    try:
        with open_regular(path, follow=True) as file:
            return os.fsdecode(file.read(_LONGEST_POINTER)).rstrip("\r\n")
    except OSError:
        return None


def git_dir_named_by(worktree: Path) -> Path | None:
    """Return the git directory that the file `.git` of a worktree names; None without such a file.

    A pointer may be relative to the worktree: `worktree.useRelativePaths`, and submodules.
    """
    try:
        with open_regular(worktree / ".git") as file:
            pointer = os.fsdecode(file.read(_LONGEST_POINTER)).rstrip("\r\n")
    except (OSError, ValueError):
        return None
    if not pointer.startswith("gitdir: ") or "\0" in pointer:
        return None
    return Path(os.path.normpath(worktree / pointer.removeprefix("gitdir: ")))


def place_of(git_dir: Path) -> Path:
    """Return the linked worktree that the file `gitdir` of a worktree's git directory names."""
    # A pointer may be relative to the directory that contains it.
    return Path(os.path.normpath(git_dir / (read_line(git_dir / "gitdir") or ""))).parent


def present_place(recorded: Path, common_dir: Path) -> Path:
    """Return where a recorded worktree of the user is, if its repository was moved or copied."""
    git_dir, beside = git_dir_named_by(recorded) or recorded / ".git", common_dir.parent
    if is_same(git_dir, common_dir) or is_same(git_dir.parent.parent, common_dir):
        return recorded
    if any(place_of(entry) == recorded for entry in (common_dir / "worktrees").glob("*")):
        return recorded
    return beside if is_same(beside / ".git", common_dir) else recorded


def is_same(path: Path, other: Path) -> bool:
    """Return whether two paths lead to the same existing file."""
    try:
        return path.samefile(other)
    except OSError:
        return False
