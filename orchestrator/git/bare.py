"""Say why git has no work tree in a directory."""

import os
import shlex
from pathlib import Path

_POINTER = "gitdir: "
_LONGEST = 10_000


def no_work_tree(directory: Path) -> tuple[str, str]:
    """Return message and hint: the repository is bare, or its worktrees wrongly count as bare."""
    for place in (directory, *directory.parents):
        git_dir = _pointed(place)
        if git_dir is not None and git_dir.parent.name == "worktrees":
            return _counts_as_bare(place, git_dir.parent.parent)
        if git_dir is not None or ((place / "HEAD").exists() and (place / "objects").exists()):
            break
    hint = "run the command inside a checkout of the repository"
    return f"the repository at {directory} is bare", hint


def _pointed(place: Path) -> Path | None:
    file = place / ".git"
    if not file.is_file() or file.stat().st_size > _LONGEST:
        return None
    text = os.fsdecode(file.read_bytes()).rstrip("\r\n")
    if not text.startswith(_POINTER):
        return None
    return Path(os.path.normpath(place / text.removeprefix(_POINTER)))


def _counts_as_bare(worktree: Path, common_dir: Path) -> tuple[str, str]:
    # As older versions of this program left it, which did not move the setting.
    git = f"git --git-dir={shlex.quote(str(common_dir))} config"
    return (
        f"`core.bare` of the repository {common_dir} applies to its worktree {worktree} too, "
        "because `extensions.worktreeConfig` is on",
        f"repair it with `{git} --worktree core.bare true && {git} --local --unset core.bare`",
    )
