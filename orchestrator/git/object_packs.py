"""Object directories that hold what one commit reaches, and nothing else of a repository."""

import os
import tempfile
from pathlib import Path
from typing import Literal

from orchestrator.git.command import Git

History = Literal["full", "shallow"]


def pack_commit(
    git: Git, common_dir: Path, commit: str, directory: Path, *, history: History
) -> frozenset[str]:
    """Pack what a commit reaches.

    Args:
        git: Where the objects come from.
        common_dir: The git directory that tells which commits are cut off there.
        commit: The commit.
        directory: Is made; everybody may read it.
        history: `shallow` packs the one commit and its files.

    Returns:
        The commits that are cut off from their parents.
    """
    pack = directory / "pack"
    pack.mkdir(parents=True)
    arguments = ("pack-objects", "-q", "--delta-base-offset", str(pack / "pack"))
    if history == "shallow":
        with tempfile.TemporaryFile() as listing:
            git.run("rev-list", "--objects", "--no-walk", commit, stdout=listing)
            listing.seek(0)
            git.run(*arguments, stdin=listing)
        cut = frozenset({commit})
    else:
        git.run(*arguments, "--revs", stdin=f"{commit}\n".encode())
        cut = shallow_commits(common_dir)
        if cut:
            roots = git.text("rev-list", "--max-parents=0", commit).split()
            cut &= frozenset(roots)
    _open_to_all(directory)
    return cut


def pack_since(git: Git, commit: str, base: str, directory: Path) -> None:
    """Add what a commit reaches and its base does not to a directory that has all of the base.

    Args:
        git: Where the objects come from.
        commit: The commit.
        base: What is there already.
        directory: What `pack_commit` made, or a copy of it.
    """
    directory.chmod(0o755)
    arguments = ("pack-objects", "-q", "--delta-base-offset", str(directory / "pack" / "pack"))
    git.run(*arguments, "--revs", stdin=f"{commit}\n^{base}\n".encode())
    _open_to_all(directory)


def shallow_commits(common_dir: Path) -> frozenset[str]:
    """Return the commits whose parents are not there."""
    file = common_dir / "shallow"
    return frozenset(file.read_text().split()) if file.exists() else frozenset()


def _open_to_all(directory: Path) -> None:
    # The worker's user is not ours, and the umask may be strict.
    for folder, _, files in os.walk(directory):
        Path(folder).chmod(0o755)
        for name in files:
            (Path(folder) / name).chmod(0o444)
