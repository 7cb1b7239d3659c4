"""Read git's error output, and say what it means: a full disk, or no work tree."""

import errno
import os
import shlex
from pathlib import Path
from typing import IO

_FULL = "No space left on device"
_TEXTS = (_FULL, "Out of diskspace")
"""Error messages for a full disk: of the operating system, and of git when it writes packs and
indexes.
"""
_MOST_SAID = 8 * 1024
"""Number of bytes that are kept of both the beginning and the end of an error output."""


def disk_full(said: str) -> OSError | None:
    """Return an error if git's error output says that the disk is full; otherwise None."""
    return OSError(errno.ENOSPC, _FULL) if any(text in said for text in _TEXTS) else None


def excerpt(said: IO[bytes]) -> str:
    """Return the beginning and the end of a long error output."""
    size = said.seek(0, os.SEEK_END)
    said.seek(0)
    # protection: stored-error-output-limited
    words = said.read(_MOST_SAID)
    if size > 2 * _MOST_SAID:
        said.seek(size - _MOST_SAID)
        words += b"\n...\n"
    return (words + said.read(_MOST_SAID)).decode("utf-8", "replace")


def no_work_tree(directory: Path, git_dir: Path) -> tuple[str, str]:
    """Return message and hint: the repository is bare, or its worktrees wrongly count as bare."""
    for place in (directory, *directory.parents):
        if (place / ".git").is_file() and git_dir.parent.name == "worktrees":
            # As older versions of this program left it, which did not move the setting.
            common_dir = git_dir.parent.parent
            git = f"git --git-dir={shlex.quote(str(common_dir))} config"
            return (
                f"`core.bare` of the repository {common_dir} applies to its worktree {place} too, "
                "because `extensions.worktreeConfig` is on",
                f"repair it with `{git} --worktree core.bare true "
                f"&& {git} --local --unset core.bare`",
            )
    hint = "run the command inside a checkout of the repository"
    return f"the repository at {directory} is bare", hint
