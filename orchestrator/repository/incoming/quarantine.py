"""Check a worker's pack of commits in a separate repository (a quarantine), then import it.

The host's git reads nothing else that a worker wrote. `docs/architecture.md` lists the rules. A
pack that breaks a rule is refused as a whole, and the branch stays at its base.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orchestrator.base.errors import (
    GitCommandError,
    OutputTooLongError,
    RepositoryError,
)
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import Git, records
from orchestrator.repository.git.failures import disk_full
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.git.object_reader import consult, open_objects
from orchestrator.repository.git_directory import make_bare
from orchestrator.repository.incoming import tree_checks
from orchestrator.repository.incoming.packed_work import (
    Harvested,
    HarvestRefusedError,
    NewHistory,
    open_handed_over,
    read_history,
    read_notes,
    read_tip,
)
from orchestrator.repository.repository import Repository

MAX_PACK = 1024**3
"""Maximum size of one worker's pack of commits, in bytes."""
MAX_ENTRIES = 200_000
"""Maximum number of files and directories in a commit, or twice those of the base if that is more.
"""
MAX_CHECKOUT = 4 * 1024**3
"""Maximum total size in bytes of all files that differ from the base, checked out."""
MAX_COMMITS = 100_000
"""Maximum number of new commits of one worker."""
MAX_OBJECTS = 2_000_000
"""Maximum number of new git objects of one worker."""
MAX_MESSAGE = 1024**2
"""Maximum size of a commit object in bytes, because every tool that shows the history holds it in
memory.
"""
MAX_PATHS = 64 * 1024**2
"""Maximum total length in bytes of all paths in a commit, or twice that of the base if that is
more.
"""
MAX_TREE = 32 * 1024**2
"""Maximum size of a tree object (a directory), in bytes."""
MAX_TREES = 128 * 1024**2
"""Maximum total size of all new tree objects (directories), in bytes."""
# A delta of a few bytes can stand for gigabytes, which git would unpack in memory.
# protection: size-of-unpacked-deltas-limited
_FRUGAL = {"GIT_ALLOC_LIMIT": "256m"}
_FEW = 100
"""Number of objects from which a pack stays a pack; fewer objects become loose files, as in `git
fetch`.
"""
_PATH_MAX = 4095
_READ_HERE = 256 * 1024
"""Number of bytes of trees (about 7,000 files) that are checked without a separate process, which
would take longer to start than git to make the commit.
"""
_TRAILER = {"sha1": 20, "sha256": 32}
"""Number of bytes of the checksum at the end of a pack."""
# Imported, not run as a script: Python would compile a script again each time.
_TREE_RULES = (
    "import sys; sys.path.append(sys.argv[1]); import tree_checks; tree_checks.main(*sys.argv[2:])"
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The objects that a worker was given; its commits may use only these and new objects."""

    base: str
    """The commit that the run started from; everything newer is checked."""
    objects: Path
    """Object directory with the objects that the base reaches, and no other object of the
    repository.
    """
    shallow: frozenset[str]
    start: str | None = None
    """The branch's commit, if an earlier attempt moved the branch from the base."""
    room: int = MAX_CHECKOUT
    """Maximum total size in bytes of the files that differ from the base, checked out."""
    on_top: bool = True
    """Whether the worker's commits must be descendants of the base."""


@dataclass(frozen=True, kw_only=True)
class HandedOver:
    """The files in which a worker's commits are handed over, before they are checked."""

    repository: Repository
    """The user's repository."""
    out: Path
    """Directory with the files `pack`, `tip`, `notes`, `kept` and `kept.pack`."""
    quarantine: Path
    """Temporary directory to create and remove, in which the commits are checked."""
    origin: Origin
    """The objects that the worker was given."""


def import_harvest(handed: HandedOver) -> Harvested:
    """Check the commits that a worker handed over, and import their objects; no ref changes.

    Raises:
        HarvestRefusedError: A rule was broken, or the files are malformed.
        OSError: The disk is full.
    """
    quarantine, origin = handed.quarantine, handed.origin
    harvested = Harvested(read_tip(handed.out), read_notes(handed.out))
    if harvested.tip == (origin.start or origin.base):
        return harvested
    # A process that died may have left a quarantine.
    # protection: leftover-quarantine-is-removed
    shutil.rmtree(quarantine, ignore_errors=True)
    try:
        with refusals():
            pack = handed.out / "pack"
            import_checked(handed.repository, pack, quarantine, origin, harvested.tip)
    finally:
        # protection: quarantine-is-removed
        shutil.rmtree(quarantine, ignore_errors=True)
    return harvested


@contextmanager
def refusals() -> Iterator[None]:
    """Convert errors of git inside the `with` block, which hostile objects may cause, to refusals.

    Raises:
        HarvestRefusedError: A rule is broken, or git took too long.
        OSError: The disk is full.
    """
    try:
        yield
    except OutputTooLongError as error:
        raise HarvestRefusedError(
            f"the worker's work is too large to check: {one_line(error.message)}",
            key="work.too-large",
        ) from error
    except RepositoryError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        full = disk_full(error.stderr) if isinstance(error, GitCommandError) else None
        raise full or HarvestRefusedError(one_line(error.message), key="work.invalid") from error


def import_checked(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, tip: str
) -> Git:
    """Check a pack in a new quarantine, import its objects, and return git in the quarantine.

    Raises:
        HarvestRefusedError: A rule is broken.
        GitCommandError: Git refused an object, or an object is missing.
        OutputTooLongError: There is too much to check.
    """
    # protection: packs-are-checked-with-strict
    git = unpack(repository, pack, quarantine, origin, "--strict")
    # protection: size-limit-follows-workers-disk-limit
    room = min(origin.room, MAX_CHECKOUT)
    history = check_trees(git, base=origin.base, tip=tip, repository=repository, room=room)
    # protection: tip-must-descend-from-base
    if origin.on_top and not history.follows_base:
        raise HarvestRefusedError(
            "the worker's last commit does not contain the commit that the worker started from",
            key="work.unrelated",
        )
    with repository.lock():
        accept_pack(repository, quarantine)
        if history.contains_empty_tree:
            repository.git.run("hash-object", "-t", "tree", "-w", "--stdin", stdin=b"")
    return git


def unpack(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, *strictly: str
) -> Git:
    """Unpack a worker's pack into a new quarantine, and return git in the quarantine.

    With `--strict`, git refuses objects that break its rules.

    Raises:
        HarvestRefusedError: The pack has too many objects, or an object is too large.
        GitCommandError: Git refused the pack.
    """
    git = _make_quarantine(repository, quarantine, origin)
    with open_handed_over(pack) as file:
        size = os.fstat(file.fileno()).st_size
        # protection: size-of-packs-limited
        git.run(
            "index-pack", "--stdin", "--fix-thin", *strictly, "--threads=1",
            f"--max-input-size={MAX_PACK}", stdin=file, env=_FRUGAL,
        )  # fmt: skip
    _check_objects(git, quarantine, size - _TRAILER[repository.object_format])
    return git


def accept_pack(repository: Repository, quarantine: Path) -> None:
    """Import the objects of a checked pack into the repository; git checks them once more.

    Raises:
        GitCommandError: An object breaks one of git's rules, or refers to a missing object.
    """
    (pack,) = (quarantine / "objects" / "pack").glob("*.pack")
    with pack.open("rb", buffering=0) as file:
        count = int.from_bytes(file.read(12)[8:])
        file.seek(0)
        # As git's fetch does, in a third of the time: few objects become loose files, of many the
        # pack is kept.
        few = count < _FEW
        command = ("unpack-objects", "-q") if few else ("index-pack", "--stdin", "--threads=1")
        git = repository.git.within(UNTRUSTED)
        # protection: import-checks-objects-with-strict
        git.run(*command, "--strict", stdin=file, env=_FRUGAL)


def _make_quarantine(repository: Repository, quarantine: Path, origin: Origin) -> Git:
    """Create a separate repository that has only the objects that the worker was given.

    If it had all objects of the user's repository, a worker could make a secret commit or file part
    of its own history merely by naming its id.
    """
    make_bare(quarantine, object_format=repository.object_format)
    # protection: quarantine-contains-only-given-objects
    (quarantine / "objects" / "info" / "alternates").write_text(f"{origin.objects}\n")
    if origin.shallow:
        lines = (f"{commit}\n" for commit in sorted(origin.shallow))
        (quarantine / "shallow").write_text("".join(lines))
    # No fsync: the quarantine is temporary. The import into the repository is made crash-safe.
    config = {"core.fsync": "none"}
    return Git(quarantine, config=config, env=_FRUGAL, limits=UNTRUSTED, sealed=True)


def _check_objects(git: Git, quarantine: Path, end: int) -> None:
    """Check number, types and sizes of all objects in a pack, before any object is read whole.

    Args:
        git: Git in the quarantine.
        quarantine: Its git directory.
        end: Length of the pack as the worker wrote it, in bytes. Objects after that are delta bases
            that git added.

    Raises:
        HarvestRefusedError: There are too many objects, or they are too large.
    """
    (index,) = (quarantine / "objects" / "pack").glob("*.idx")
    with tempfile.TemporaryFile() as names, index.open("rb") as file:
        with git.reading("show-index", stdin=file) as lines:
            for number, line in enumerate(records(lines, b"\n")):
                # protection: number-of-new-objects-limited
                if number >= MAX_OBJECTS:
                    raise HarvestRefusedError(
                        f"the worker's work has more than {MAX_OBJECTS} new git objects",
                        key="work.too-many-objects",
                    )
                offset, name, *_ = line.split(b" ")
                if int(offset) < end:
                    names.write(name + b"\n")
        total = 0
        for kind, size in _kinds(git, names):
            total += size
            # protection: size-of-commit-objects-limited
            if kind in (b"commit", b"tag") and size > MAX_MESSAGE:
                raise HarvestRefusedError(
                    f"a commit or tag object has {size} bytes, message included; "
                    f"the limit is {MAX_MESSAGE}",
                    key="work.object-too-large",
                )
            # protection: total-size-of-new-objects-limited
            _check_total(total, MAX_CHECKOUT)


def check_trees(
    git: Git, *, base: str, tip: str, repository: Repository, room: int = MAX_CHECKOUT
) -> NewHistory:
    """Refuse new commits if the tree of any of them has harmful names, paths or sizes.

    Args:
        git: Repository with the commits' objects.
        base: A commit of the user; all of its contents are allowed.
        tip: The last of the new commits.
        repository: The user's repository, for the paths of workers' worktrees.
        room: Largest total size of the files that differ from the base, checked out, in bytes.

    Raises:
        HarvestRefusedError: A rule is broken.
        GitCommandError: An object is missing or damaged.
        OutputTooLongError: The commits are too large to check.
    """
    history = read_history(git, base, tip, most=MAX_COMMITS)
    order = {
        "kind": "harvest",
        "base": history.base_tree,
        "roots": sorted(history.roots),
        "reserved": repository.worktree_names(),
        "room": _PATH_MAX - repository.longest_worktree() - 1,
        "bounds": {
            "entries": MAX_ENTRIES, "names": MAX_PATHS, "tree": MAX_TREE, "total": MAX_TREES,
        },
    }  # fmt: skip
    _consult(git, order)
    # protection: size-of-checked-out-files-limited
    check_size(git, base=base, tip=tip, room=room)
    return history


def check_merged(git: Git, *, before: Iterable[str], merged: Iterable[str]) -> None:
    """Refuse a merge that creates names which differ only in upper and lower case.

    Args:
        git: Repository with the merge's objects.
        before: Ids of the trees that are merged; names that they contain are allowed.
        merged: Ids of the merge's trees.

    Raises:
        HarvestRefusedError: There are such names.
        GitCommandError: An object is missing or damaged.
    """
    _consult(git, {"kind": "merge", "before": list(before), "roots": list(merged)})


def _consult(git: Git, order: Mapping[str, Any]) -> None:
    """Check trees in this process if they are small, else in a process with resource limits."""
    try:
        with open_objects(git) as places:
            # protection: many-trees-are-checked-in-separate-process
            verdict = tree_checks.verdict(order, tree_checks.Objects(*places, most=_READ_HERE))
    except tree_checks.TooManyObjectsError:
        program = (sys.executable, "-I", "-S", "-c", _TREE_RULES, str(Path(__file__).parent))
        verdict = json.loads(consult(git, program, json.dumps(order).encode()))
    # protection: refusal-of-trees-counts
    if "refused" in verdict:
        raise HarvestRefusedError(one_line(str(verdict["refused"]), limit=500), key="work.refused")


def check_size(git: Git, *, base: str, tip: str, room: int) -> None:
    """Refuse a commit if the files that differ from the base have more than `room` bytes.

    Raises:
        HarvestRefusedError: The files have more bytes.
    """
    form = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames")
    with tempfile.TemporaryFile() as names:
        with git.reading(*form, base, tip) as raw:
            # `:old_mode new_mode old new status`, NUL, path, NUL. Records are counted, because a
            # path may look like the record before it.
            for number, record in enumerate(records(raw, b"\0")):
                if number % 2 == 0:
                    names.write(record.split(b" ")[3] + b"\n")
        _check_total(sum(size for _, size in _kinds(git, names)), room)


def _check_total(total: int, room: int) -> None:
    if total > room:
        raise HarvestRefusedError(
            f"the changed files have {total} bytes, too many to check out (limit: {room})",
            key="work.too-large",
        )


def _kinds(git: Git, names: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield type and size of the objects whose ids a file lists, one per line."""
    names.seek(0)
    form = ("cat-file", "--batch-check=%(objecttype) %(objectsize)", "--buffer")
    with git.reading(*form, stdin=names) as answers:
        for line in records(answers, b"\n"):
            kind, _, size = line.partition(b" ")
            # A deleted file has the id of all zeros, for which git prints `missing` and no size.
            if size.isdigit():
                yield kind, int(size)
