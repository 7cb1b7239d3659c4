"""Provide workers with file content that git-lfs stores, and import content that they create.

Nothing is downloaded, and git-lfs need not be installed. A worker gets an object's content in place
of its pointer file, if the user has the object. When the worker's files are committed, content
becomes a pointer again; a new object is stored where git-lfs looks for it, after its hash was
checked.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from orchestrator.base.files.copy_bytes import copy_bytes
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.defaults import SIZE_AND_TIME
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.git_directory import make_bare
from orchestrator.repository.repository import Repository

RECORD = "lfs.json"
"""File that lists the LFS objects that a worker was given: path, id and size. It is
written, even with an empty list, if the worker's base commit uses git-lfs.
"""
FOLDER = "lfs"
"""Directory in which the packing container leaves new LFS objects of a worker for the host, each in
a file named by its hash."""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*"
    rb"oid sha256:(?P<oid>[0-9a-f]{64})\nsize (?P<size>[0-9]{1,15})\n"
)
_MADE = "lfs-made.json"
"""File in a worker's state directory that lists the LFS objects which the worker created."""
_LONGEST = 1024
"""Maximum size of an LFS pointer file, in bytes."""
_BATCH = 10_000
"""Number of files that one git process inspects."""
_SHOWN = 3
_MOST = 10_000
_OID = re.compile(r"[0-9a-f]{64}")
# This filter returns the blob in the index, so that content in place of a pointer counts as
# unchanged. It is only used for files that the orchestrator itself has written.
_AS_KNOWN = {"filter.lfs.clean": "git cat-file blob :0:%f", "filter.lfs.required": "true"}


@dataclass(frozen=True)
class Pointer:
    """A small file in a commit that stands for content stored by git-lfs."""

    path: str
    oid: str
    size: int


@dataclass(frozen=True)
class Content:
    """The LFS pointer files of a base commit."""

    is_used: bool = False
    pointers: tuple[Pointer, ...] = ()
    """The pointer files whose content is on this machine."""
    notices: tuple[str, ...] = ()


NO_CONTENT = Content()


def find_content(repository: Repository, base: str, scratch: Path) -> Content:
    """Find the LFS pointer files of a commit; `scratch` is a path for a temporary file."""
    if not _is_used(repository, base):
        return NO_CONTENT
    found = list(_with_filter(repository, base, dict(_pointers(repository, base)), scratch))
    there = tuple(p for p in found if _has_size(_place(repository, p.oid), p.size))
    missing = [one_line(pointer.path) for pointer in found if pointer not in there]
    if not missing:
        return Content(True, there)
    rest = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    notice = (
        "workers get pointers for files of git-lfs that are not on this machine: "
        f"{' '.join(missing[:_SHOWN])}{rest}; fetch them with `git lfs pull`"
    )
    return Content(True, there, (notice,))


def _is_used(repository: Repository, base: str) -> bool:
    if (repository.common_dir / "lfs").is_dir():
        return True
    asked = f"{base}:.gitattributes\n".encode()
    return b"filter=lfs" in repository.git.run("cat-file", "--batch", stdin=asked)


def _pointers(repository: Repository, base: str) -> Iterator[tuple[str, Pointer]]:
    """Yield the LFS pointers among the small files of a commit, each with its path."""
    small = _small(repository, base)
    while batch := list(islice(small, _BATCH)):
        asked = b"".join(object_id + b"\n" for object_id, _ in batch)
        git = repository.git.within(UNTRUSTED)
        answer = git.run("cat-file", "--batch", "--buffer", stdin=asked)
        at = 0
        for _, path in batch:
            end = answer.index(b"\n", at)
            size = int(answer[at:end].rpartition(b" ")[2])
            match = _POINTER.fullmatch(answer[end + 1 : end + 1 + size])
            at = end + size + 2
            if match is not None:
                yield path, Pointer(path, match["oid"].decode(), int(match["size"]))


def _small(repository: Repository, base: str) -> Iterator[tuple[bytes, str]]:
    for entry in repository.git.tree(base, "-l"):
        about, _, name = entry.partition(b"\t")
        mode, _, object_id, size = about.split()
        if mode.startswith(b"100") and size.isdigit() and 0 < int(size) < _LONGEST:
            yield object_id, os.fsdecode(name)


def _with_filter(
    repository: Repository, base: str, pointers: Mapping[str, Pointer], scratch: Path
) -> Iterator[Pointer]:
    """Yield the pointers that `.gitattributes` assigns to git-lfs; others are ordinary files."""
    if not pointers:
        return
    git = Git(repository.git_dir, work_tree=repository.top, index=scratch)
    # A git process that was killed may have left the lock of the index.
    scratch.with_name(f"{scratch.name}.lock").unlink(missing_ok=True)
    try:
        git.run("read-tree", base)
        asked = b"".join(os.fsencode(path) + b"\0" for path in pointers)
        answer = git.run("check-attr", "-z", "--cached", "--stdin", "filter", stdin=asked)
    finally:
        scratch.unlink(missing_ok=True)
    fields = answer.split(b"\0")
    for path, value in zip(fields[::3], fields[2::3], strict=False):
        if value == b"lfs":
            yield pointers[os.fsdecode(path)]


def _place(repository: Repository, oid: str) -> Path:
    configured = repository.git_config.get("lfs.storage")
    storage = repository.common_dir / (configured or "lfs") / "objects"
    return storage / oid[:2] / oid[2:4] / oid


def write_content(repository: Repository, pointers: Iterable[Pointer], tree: Path) -> None:
    """Write content in place of pointer files, in a directory tree that the host created.

    Raises:
        OSError: The disk is full.
    """
    for pointer in pointers:
        place = tree / pointer.path
        with suppress(FileNotFoundError):
            is_inside = place.parent.resolve() == (tree.resolve() / pointer.path).parent
            if is_inside and _is_pointer(place, pointer):
                _replace(place, _place(repository, pointer.oid))


def is_written(pointer: Pointer, tree: Path) -> bool:
    """Return whether a pointer's path in a directory tree has a file of the content's size."""
    return _has_size(tree / pointer.path, pointer.size)


def _has_size(path: Path, size: int) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size == size


def _is_pointer(place: Path, pointer: Pointer) -> bool:
    info = place.lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_size >= _LONGEST:
        return False
    match = _POINTER.fullmatch(place.read_bytes())
    return match is not None and match["oid"].decode() == pointer.oid


def _replace(place: Path, source: Path) -> None:
    mode = stat.S_IMODE(place.stat().st_mode)
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".lfs-", delete=False) as made:
        try:
            with source.open("rb") as content:
                copy_bytes(content.fileno(), made.fileno())
            os.fchmod(made.fileno(), mode)
            # Git inspects a file again if it is as new as the index, and by then without the
            # filter.
            os.utime(made.fileno(), (time.time() - 2, time.time() - 2))
            Path(made.name).rename(place)
        except BaseException:
            Path(made.name).unlink(missing_ok=True)
            raise


def tell_index(
    repository: Repository, paths: Iterable[str], tree: Path, *, index: Path, scratch: Path
) -> None:
    """Refresh a work tree's index after `write_content`, so that git sees no changed files.

    `scratch` is a temporary directory to create and remove.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    make_bare(scratch, object_format=repository.object_format)
    objects = repository.objects_dir
    # A `process` filter in the user's configuration would have priority.
    git = Git(
        scratch, work_tree=tree, index=index, alternates=objects, config=_AS_KNOWN, sealed=True
    )
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    try:
        # `--refresh` is not used, because it runs no filter for files whose size differs.
        git.run("update-index", "-z", "--stdin", stdin=asked)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def tell_index_again(repository: Repository, root: Path, git_dir: Path, tree: Path) -> None:
    """Refresh a worktree's index after a change of the files' owner, unless a file was edited."""
    try:
        given = json.loads((root / RECORD).read_text())
    except FileNotFoundError:
        return
    config = {**repository.comparing(), **SIZE_AND_TIME}
    answer = Git(git_dir, work_tree=tree, config=config).run("diff-files", "-z", "--name-only")
    if given and given.keys().isdisjoint(os.fsdecode(answer).split("\0")):
        index, scratch = git_dir / "index", root / "lfs"
        tell_index(repository, given, tree, index=index, scratch=scratch)


def write_record(pointers: Iterable[Pointer], *directories: Path) -> None:
    """Record in each of the given directories which LFS objects a worker was given."""
    text = json.dumps({pointer.path: [pointer.oid, pointer.size] for pointer in pointers})
    for directory in directories:
        (directory / RECORD).write_text(text)


def take_objects(repository: Repository, out: Path, *, room: int) -> frozenset[str]:
    """Import LFS objects that a worker created into git-lfs's storage, and return their ids.

    Args:
        repository: The user's repository.
        out: Directory that the worker handed over; its content is untrusted.
        room: Largest total size of the objects, in bytes.

    Raises:
        OSError: The disk is full.
    """
    try:
        folder = os.open(out / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return frozenset()
    taken = set()
    try:
        for name in sorted(os.listdir(folder))[:_MOST]:  # noqa: PTH208  # a descriptor
            if _OID.fullmatch(name):
                size, is_it = _take(repository, name, folder, room)
                room -= size
                taken |= {name} if is_it else set()
    finally:
        os.close(folder)
    return frozenset(taken)


def _take(repository: Repository, oid: str, folder: int, room: int) -> tuple[int, bool]:
    """Import an LFS object if its name is its hash; return its size and whether it was imported."""
    try:
        given = open_regular(oid, folder=folder)
    except OSError:
        return 0, False
    with given:
        size = os.fstat(given.fileno()).st_size
        # protection: total-size-of-lfs-objects-limited
        if size > room:
            return 0, False
        place = _place(repository, oid)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as made:
            kept = Path(made.name)
            try:
                copy_bytes(given.fileno(), made.fileno())
                made.seek(0)
                # protection: lfs-objects-must-match-their-hash
                is_it = hashlib.file_digest(made, "sha256").hexdigest() == oid
                if is_it and not place.exists():
                    kept.chmod(0o644)
                    kept.rename(place)
            finally:
                kept.unlink(missing_ok=True)
        return size, is_it


def note_made(taken: frozenset[str], state: Path) -> None:
    """Record which LFS objects a worker created, so that later tasks may get their content."""
    if taken:
        (state / _MADE).write_text(json.dumps(sorted(taken)))


def content_since(
    repository: Repository, base: str, scratch: Path, *, given: Content, run: Path
) -> Content:
    """Return the LFS pointers of a commit that is based on workers' commits.

    A pointer is returned only if the run was given its content or a worker of the run created the
    content. Otherwise a worker could get any content on this machine by writing a pointer. `given`
    is the content of the run's base, `run` the run's directory, and `scratch` a temporary file to
    create and remove.
    """
    found = find_content(repository, base, scratch)
    known = {pointer.oid for pointer in given.pointers}
    for made in run.glob(f"worker-*/{_MADE}"):
        known |= set(json.loads(made.read_text()))
    # protection: lfs-content-requires-more-than-its-hash
    pointers = tuple(pointer for pointer in found.pointers if pointer.oid in known)
    return replace(found, pointers=pointers)
