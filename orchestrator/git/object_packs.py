"""Create object directories that hold the objects of one commit, and no others."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from orchestrator.errors import GitCommandError, RepositoryError
from orchestrator.git.command import Git
from orchestrator.git.git_directory import shallow_commits

_MISSING = re.compile(r"promisor remote|lazy fetching|missing (blob|tree|commit)|bad object")
History = Literal["full", "shallow"]


def pack_commit(
    git: Git, common_dir: Path, commit: str, directory: Path, *, history: History
) -> frozenset[str]:
    """Pack the objects that a commit reaches.

    Args:
        git: Repository that has the objects.
        common_dir: That repository's common git directory, with its `shallow` file.
        commit: The commit.
        directory: Object directory to create; all users may read it.
        history: `shallow` packs only the commit itself and its files.

    Returns:
        The commits whose parents are not in the pack.
    """
    pack = directory / "pack"
    pack.mkdir(parents=True)
    arguments = ("pack-objects", "-q", "--delta-base-offset", str(pack / "pack"))
    if history == "shallow":
        _pack_alone(git, commit, arguments)
        cut = frozenset({commit})
    else:
        git.run(*arguments, "--revs", stdin=f"{commit}\n".encode())
        cut = shallow_commits(common_dir)
        if cut:
            roots = git.text("rev-list", "--max-parents=0", commit).split()
            cut &= frozenset(roots)
    _open_to_all(directory)
    return cut


def _pack_alone(git: Git, commit: str, arguments: Sequence[str]) -> None:
    """Pack a commit and its files, but no other commit.

    Raises:
        RepositoryError: A partial clone lacks some of the files.
    """
    try:
        with tempfile.TemporaryFile() as listing:
            git.run("rev-list", "--objects", "--no-walk", commit, stdout=listing)
            listing.seek(0)
            git.run(*arguments, stdin=listing)
    except GitCommandError as error:
        if not _MISSING.search(error.stderr):
            raise
        raise RepositoryError(
            f"the repository is a partial clone and lacks files of {commit[:12]}",
            hint=f"`git archive --format=tar --output=/dev/null {commit[:12]}` fetches them",
        ) from error


def pack_since(git: Git, commit: str, base: str, directory: Path) -> None:
    """Add the objects that a commit reaches and its base does not, as another pack.

    Args:
        git: Repository that has the objects.
        commit: The commit.
        base: A commit whose objects are in `directory` already.
        directory: An object directory that `pack_commit` created, or a copy of it.
    """
    directory.chmod(0o755)
    arguments = ("pack-objects", "-q", "--delta-base-offset", str(directory / "pack" / "pack"))
    git.run(*arguments, "--revs", stdin=f"{commit}\n^{base}\n".encode())
    _open_to_all(directory)


def _open_to_all(directory: Path) -> None:
    # The worker runs as another user, and the umask may be strict.
    for folder, _, files in os.walk(directory):
        Path(folder).chmod(0o755)
        for name in files:
            (Path(folder) / name).chmod(0o444)
