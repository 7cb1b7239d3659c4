"""Create object directories that hold the objects of one commit, and no others."""

import os
import re
import struct
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Literal

from orchestrator.errors import GitCommandError, RepositoryError
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.command import Git
from orchestrator.git.git_directory import shallow_commits
from orchestrator.git.pack_files import put_pack
from orchestrator.git.reached_objects import reached_objects
from orchestrator.threads import meanwhile

_MISSING = re.compile(r"promisor remote|lazy fetching|missing (blob|tree|commit)|bad object")
_UNREADABLE = re.compile(
    rf"{_MISSING.pattern}|bad tree object|could not read|failed to traverse|unable to read"
    r"|is corrupt|is empty|does not match index|inflate: |bad packed object",
    re.IGNORECASE,
)
"""Pattern of git's errors about objects that are missing or damaged."""
_INDEX_MAGIC = b"\377tOc\0\0\0\2"
_FANOUT = 256 * 4
_NAMED = re.compile(r"pack-[0-9a-f]{40,64}\.idx")
History = Literal["full", "shallow"]


def pack_commit(
    git: Git, common_dir: Path, commit: str, directory: Path, *, history: History
) -> frozenset[str]:
    """Create an object directory with the objects that a commit reaches.

    If objects of the commit's past are missing or damaged, only the commit itself is packed.

    Args:
        git: Repository that has the objects.
        common_dir: That repository's common git directory, with its `shallow` file.
        commit: The commit.
        directory: Object directory to create; all users may read it.
        history: `shallow` packs only the commit itself and its files.

    Returns:
        The commits whose parents are not in the directory.
    """
    (directory / "pack").mkdir(parents=True)
    if history == "full":
        try:
            _pack_history(git, common_dir, commit, directory)
            return cut_of(git, common_dir, commit)
        except GitCommandError as error:
            if not _UNREADABLE.search(error.stderr):
                raise
            try:
                return _pack_alone(git, commit, directory)
            except RepositoryError:
                raise error from None
    return _pack_alone(git, commit, directory)


def cut_of(git: Git, common_dir: Path, commit: str) -> frozenset[str]:
    """Return the commits that a commit reaches, and whose parents a shallow clone lacks."""
    cut = shallow_commits(common_dir)
    if cut:
        cut &= frozenset(git.text("rev-list", "--max-parents=0", commit).split())
    return cut


def _pack_history(git: Git, common_dir: Path, commit: str, directory: Path) -> None:
    """Pack the objects that a commit reaches; use the repository's largest pack if it can be used.

    That pack is used as it is if it holds nothing else. The proof is a count: of the reached
    objects, as many are outside of the pack as there are more reached objects than packed ones.
    """
    pack = directory / "pack"
    with reached_objects(git, common_dir, commit, directory) as reached:
        largest, held = _largest_pack(common_dir)
        if largest is not None and reached.lines <= 2 * held <= 2 * reached.lines:
            checksum = "sha1" if len(commit) == 40 else "sha256"
            put = partial(put_pack, largest, pack, checksum=checksum)
            with meanwhile(reached.count) as count, meanwhile(put) as is_put:
                options = ("--non-empty", f"--keep-pack={largest.name}")
                _pack(git, reached.listing, directory, *options)
            new = [path for path in pack.glob("*.idx") if path.stem != largest.stem]
            others = sum(_objects_in(path) for path in new)
            if is_put.result() and count.result() - others == held:
                open_to_all(directory)
                return
            _empty(pack)
        _pack(git, reached.listing, directory)
    open_to_all(directory)


def _largest_pack(common_dir: Path) -> tuple[Path | None, int]:
    """Return the pack of a repository that has the most objects, and their number."""
    indexes = (common_dir / "objects" / "pack").glob("*.idx")
    found = {path: _objects_in(path) for path in indexes if _NAMED.fullmatch(path.name)}
    largest = max(found, key=lambda path: found[path], default=None)
    return (None, 0) if largest is None else (largest.with_suffix(".pack"), found[largest])


def _objects_in(index: Path) -> int:
    """Return the number of objects that the index of a pack lists; 0 if it cannot be read."""
    try:
        with index.open("rb") as file:
            head = file.read(len(_INDEX_MAGIC) + _FANOUT)
    except OSError:
        return 0
    if not head.startswith(_INDEX_MAGIC) or len(head) < len(_INDEX_MAGIC) + _FANOUT:
        return 0
    return int(struct.unpack(">I", head[-4:])[0])


def _pack_alone(git: Git, commit: str, directory: Path) -> frozenset[str]:
    """Pack a commit and its files, but no other commit.

    Raises:
        RepositoryError: A partial clone lacks some of the files.
    """
    _empty(directory / "pack")
    try:
        with tempfile.TemporaryFile() as listing:
            git.run("rev-list", "--objects", "--no-walk", commit, stdout=listing)
            _pack(git, listing, directory)
    except GitCommandError as error:
        if not _MISSING.search(error.stderr):
            raise
        raise RepositoryError(
            f"the repository is a partial clone and lacks files of {commit[:12]}",
            hint=f"`git archive --format=tar --output=/dev/null {commit[:12]}` fetches them",
        ) from error
    open_to_all(directory)
    return frozenset({commit})


def pack_since(git: Git, commit: str, base: str, directory: Path) -> None:
    """Add the objects that a commit reaches and its base does not, as another pack.

    Args:
        git: Repository that has the objects.
        commit: The commit.
        base: A commit whose objects are in `directory` already.
        directory: An object directory that `pack_commit` created, or a copy of it.
    """
    directory.chmod(0o755)
    _pack(git, f"{commit}\n^{base}\n".encode(), directory, "--revs")
    open_to_all(directory)


def _pack(git: Git, wanted: IO[bytes] | bytes, directory: Path, *options: str) -> None:
    if not isinstance(wanted, bytes):
        wanted.seek(0)
    names: Sequence[str] = ("-q", "--delta-base-offset", str(directory / "pack" / "pack"))
    git.run("pack-objects", *options, *names, stdin=wanted)


def _empty(pack: Path) -> None:
    remove_tree(pack)
    pack.mkdir()


def open_to_all(directory: Path) -> None:
    """Make an object directory readable for all users, and its new files read-only."""
    # The worker runs as another user, and the umask may be strict.
    for folder, _, files in os.walk(directory):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder) / name
            # A file that all may read may be a link to a pack of the user, whose mode is kept.
            if path.stat().st_mode & 0o444 != 0o444:
                path.chmod(0o444)
