"""Create object directories that hold the objects of one commit, and no others; link packs."""

import hashlib
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Literal

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import open_regular
from orchestrator.repository.git.command import Git
from orchestrator.repository.git_directory import shallow_commits
from orchestrator.repository.objects.reached_objects import count_objects, list_reached_objects

_MISSING = re.compile(r"promisor remote|lazy fetching|missing (blob|tree|commit)|bad object")
_UNREADABLE = re.compile(
    rf"{_MISSING.pattern}|bad tree object|could not read|failed to traverse|unable to read"
    r"|is corrupt|is empty|does not match index|inflate: |bad packed object",
    re.IGNORECASE,
)
"""Pattern of git's errors about objects that are missing or damaged."""
_INDEX_MAGIC = b"\377tOc\0\0\0\2"
_FANOUT = 256 * 4
_ALL_READ = 0o444
_FORM = ("-q", "--delta-base-offset")
"""Options of `git pack-objects`."""
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
    If an object that is outside is counted twice, the proof fails.
    """
    pack = directory / "pack"
    largest, held = _largest_pack(common_dir)
    keeping = ("--non-empty", f"--keep-pack={largest.name}") if largest else ()
    # Each part of the list is packed without the objects of the largest pack at once.
    then = partial(_pack, git, directory=directory, options=keeping) if largest else None
    with list_reached_objects(git, common_dir, commit, directory, then=then) as parts:
        if largest is not None:
            checksum = "sha1" if len(commit) == 40 else "sha256"
            reached = count_objects(parts, held)
            others = sum(_objects_in(path) for path in pack.glob("*.idx"))
            # protection: pack-of-repository-holds-nothing-else
            alone = reached - others == held
            if alone and reached <= 2 * held and put_pack(largest, pack, checksum=checksum):
                open_to_all(directory)
                return
            _empty(pack)
        with tempfile.TemporaryFile(dir=directory) as listing:
            for part in parts:
                shutil.copyfileobj(part.lines(), listing, 1 << 20)
            _pack(git, listing, directory)
    open_to_all(directory)


def _largest_pack(common_dir: Path) -> tuple[Path | None, int]:
    """Return the pack that has most of a repository's packed objects, and their number."""
    indexes = (common_dir / "objects" / "pack").glob("*.idx")
    found = {path: _objects_in(path) for path in indexes if _NAMED.fullmatch(path.name)}
    largest = max(found, key=lambda path: found[path], default=None)
    if largest is None or 2 * found[largest] <= sum(found.values()):
        return None, 0
    return largest.with_suffix(".pack"), found[largest]


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
            key="repository.partial-clone",
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
    pack_range(git, commit, base, directory / "pack")
    open_to_all(directory)


def pack_range(git: Git, commit: str, base: str, folder: Path) -> str:
    """Pack the objects that a commit reaches and its base does not; return the pack's name."""
    wanted = f"{commit}\n^{base}\n".encode()
    command = ("pack-objects", "--revs", *_FORM, str(folder / "pack"))
    return f"pack-{git.text(*command, stdin=wanted)}"


def _pack(git: Git, wanted: IO[bytes], directory: Path, options: Sequence[str] = ()) -> None:
    wanted.seek(0)
    git.run("pack-objects", *options, *_FORM, str(directory / "pack" / "pack"), stdin=wanted)


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
            # protection: mode-of-pack-of-user-is-kept
            if path.stat().st_mode & _ALL_READ != _ALL_READ:
                # protection: objects-not-writable
                path.chmod(_ALL_READ)


def put_pack(pack: Path, directory: Path, *, checksum: str) -> bool:
    """Link or copy a pack of the user's repository; return False if it is damaged or gone.

    Args:
        pack: The pack.
        directory: The directory that gets it, with its index.
        checksum: Name of the hash whose value ends the pack.
    """
    files = (pack.with_suffix(".idx"), pack)
    try:
        for file in files:
            put_file(file, directory / file.name)
        if _is_sound(directory / pack.name, checksum):
            return True
    except OSError:
        # The user's git has just removed the pack.
        pass
    for file in files:
        (directory / file.name).unlink(missing_ok=True)
    return False


def put_file(file: Path, place: Path) -> None:
    """Link a file to a new place; copy it if it cannot be linked or not all users may read it.

    Raises:
        OSError: It is not a regular file, or cannot be read.
    """
    # protection: links-among-shared-packs-are-not-followed
    with open_regular(file) as source:
        # The mode of a file of the user is not changed.
        # protection: pack-that-not-all-may-read-is-copied
        if os.fstat(source.fileno()).st_mode & _ALL_READ == _ALL_READ:
            with suppress(OSError):
                os.link(file, place, follow_symlinks=False)
                return
        with place.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1024**2)
            copy.flush()
            os.fchmod(copy.fileno(), _ALL_READ)
            os.fsync(copy.fileno())


def is_pair(pack: Path, checksum: int) -> bool:
    """Return whether a pack and its index end with the same checksum, of so many bytes."""
    with open_regular(pack) as file, open_regular(pack.with_suffix(".idx")) as index:
        file.seek(-checksum, os.SEEK_END)
        index.seek(-2 * checksum, os.SEEK_END)
        # protection: shared-packs-end-with-checksum-of-their-index
        return file.read() == index.read(checksum)


def _is_sound(pack: Path, checksum: str) -> bool:
    """Return whether a pack's content has the checksum at its end, which its index has too."""
    digest = hashlib.new(checksum)
    with open_regular(pack) as file:
        rest = file.seek(0, os.SEEK_END) - digest.digest_size
        file.seek(0)
        while rest > 0 and (block := file.read(min(rest, 1024**2))):
            digest.update(block)
            rest -= len(block)
        # protection: pack-of-repository-is-undamaged
        return file.read() == digest.digest() and is_pair(pack, digest.digest_size)
