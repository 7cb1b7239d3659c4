"""Change the owner of directory trees."""

import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from orchestrator.base.files.walk import Walk

_FEW = 300
"""Number of files up to which this process is faster than the program `chown`."""


def change_owner(root: Path, owner: tuple[int, int], *, keep: Path | None = None) -> None:
    """Change the owner of a directory tree that the host created; follow no links.

    Args:
        root: The tree.
        owner: uid and gid.
        keep: A worktree whose top directory and `.git` keep their owner, so that the user's git
            still trusts it.
    """
    # The root of an overlay takes its permissions from the upper layer.
    change_owners([root], owner, keep=keep)


def change_owners(
    roots: Iterable[Path], owner: tuple[int, int], *, keep: Path | None = None
) -> None:
    """Change the owner of several directory trees, as `change_owner` does for one."""
    paths: list[Path] = []
    for root in roots:
        kept = root == keep
        # protection: worktrees-top-stays-callers
        paths += [path for path in root.iterdir() if path.name != ".git"] if kept else [root]
    # A few files are changed sooner than a process starts.
    if _change_few(paths, owner) or _run_chown(paths, owner):
        return
    # The user may have deleted files meanwhile, or `chown` is missing or too simple.
    for path in paths:
        _change(path, owner)


def _run_chown(paths: list[Path], owner: tuple[int, int]) -> bool:
    """Change the owner with the program `chown`, which is fast; return whether that succeeded.

    As a separate process, `chown` does not hold up the other threads of this process.
    """
    # protection: change-of-owner-with-chown-does-not-follow-links
    command = ["chown", "-h", "-R", "-P", f"{owner[0]}:{owner[1]}", "--", *map(str, paths)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _change_few(paths: list[Path], owner: tuple[int, int]) -> bool:
    """Change the owner if there are few files; return whether that succeeded."""
    try:
        found = _few_below(paths)
        for path in found:
            # protection: change-of-owner-of-few-files-does-not-follow-links
            os.chown(path, *owner, follow_symlinks=False)
    except OSError:
        return False
    return bool(found) or not paths


def _few_below(paths: list[Path]) -> list[Path]:
    """Return the paths and everything below them; nothing if these are more than `_FEW` files."""
    found = list(paths)
    for path in paths:
        if len(found) > _FEW:
            return []
        if path.is_dir() and not path.is_symlink():
            walk = Walk(path, most=_FEW + 1)
            found += [path / name for name, _ in walk]
            if walk.hidden:
                return []
    return found if len(found) <= _FEW else []


def _change(path: Path, owner: tuple[int, int]) -> None:
    with suppress(FileNotFoundError):
        os.chown(path, *owner, follow_symlinks=False)
    if path.is_symlink() or not path.is_dir():
        return
    for _, directories, files, descriptor in os.fwalk(path):
        for name in (*directories, *files):
            with suppress(FileNotFoundError):
                # protection: change-of-owner-in-python-does-not-follow-links
                os.chown(name, *owner, dir_fd=descriptor, follow_symlinks=False)
