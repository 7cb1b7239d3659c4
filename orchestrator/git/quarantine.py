"""Step two of a harvest, on the host: one pack and one object id are checked and let in.

Nothing else that a worker wrote is ever read by the host's git. The rules are those of
`docs/architecture.md`; a pack that breaks one is refused whole and the branch stays at its base.
"""

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from orchestrator.errors import OrchestratorError, RepositoryError
from orchestrator.files.safe_open import NotRegularError, open_regular
from orchestrator.git.command import (
    FULL,
    UNTRUSTED,
    Git,
    GitCommandError,
    OutputTooLongError,
    make_bare,
    records,
)
from orchestrator.git.repository import Repository
from orchestrator.text.sanitize import one_line

MAX_PACK = 1024**3
"""Bytes of one worker's pack."""
MAX_ENTRIES = 200_000
"""Files and directories of a tree, unless its base has half as many already."""
MAX_CHECKOUT = 4 * 1024**3
"""Bytes of all files that differ from the base, unpacked."""
MAX_COMMITS = 100_000
"""New commits."""
MAX_OBJECTS = 2_000_000
"""New objects."""
MAX_MESSAGE = 1024**2
"""Bytes of a commit, its message included: whoever shows the history has it in memory."""
MAX_PATHS = 64 * 1024**2
"""Bytes of all paths of a tree, unless its base has half as many already."""
MAX_TREE = 32 * 1024**2
"""Bytes of one tree object."""
MAX_TREES = 128 * 1024**2
"""Bytes of all new tree objects."""
# A delta of a few bytes can stand for gigabytes, which git would unpack in memory.
_FRUGAL = {"GIT_ALLOC_LIMIT": "256m"}
_FEW = 100
"""Objects that are kept as files of their own, as git does by default."""
_PATH_MAX = 4095
_TRAILER = {"sha1": 20, "sha256": 32}
"""Bytes of the checksum at a pack's end."""
# Not as a script, which Python would compile anew each time.
_TREE_RULES = (
    "import sys; sys.path.append(sys.argv[1]); import tree_checks; tree_checks.main(*sys.argv[2:])"
)
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class HarvestRefusedError(OrchestratorError):
    """What a worker handed over broke a rule; nothing of it was let in."""


@dataclass(frozen=True)
class Harvested:
    """What a worker's harvest came to."""

    tip: str
    """The commit its branch points at now."""
    notes: tuple[str, ...]
    """What was left out or changed on the way, for people."""
    kept_refs: tuple[str, ...] = ()
    """Refs of commits that the branch does not reach."""
    refused: str | None = None
    """Why not all of it was let in."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a worker started from: all that its commits may be made of, beside its own objects."""

    base: str
    """What the run starts from: all that is new since is checked."""
    objects: Path
    """An object directory with what the base reaches, and nothing else of the repository."""
    shallow: frozenset[str]
    start: str | None = None
    """Where the branch is, if not at the base: an earlier attempt's commit."""
    room: int = MAX_CHECKOUT
    """Bytes that the files which differ from the base may take, checked out."""
    on_top: bool = True
    """Whether a commit must be on top of the base."""


def _forget(harvested: Harvested) -> None:
    """Keep no note."""


def import_harvest(
    repository: Repository,
    *,
    out: Path,
    quarantine: Path,
    branch: str,
    origin: Origin,
    note: Callable[[Harvested], None] = _forget,
    notes: tuple[str, ...] = (),
    kept_refs: tuple[str, ...] = (),
    refused: str | None = None,
) -> Harvested:
    """Check what the helper container wrote to `out` and move the worker's branch to it.

    Args:
        repository: Where it goes.
        out: The directory with `pack`, `tip` and `notes`.
        quarantine: A directory to be made, and removed again.
        branch: The worker's branch; it must be where the worker started.
        origin: What the worker started from.
        note: Is told of what was let in, before the branch moves.
        notes: What people are to know of it beside what the helper says.
        kept_refs: Refs of commits that the branch does not reach.
        refused: Why this is not all that the worker handed over.

    Raises:
        HarvestRefusedError: A rule was broken, or the files are not what they should be.
        GitCommandError: The branch is not there any more.
    """
    tip = read_tip(out)
    notes = (*_read_notes(out / "notes"), *notes)
    harvested = Harvested(tip, notes, kept_refs, refused)
    start = origin.start or origin.base
    if tip == start:
        note(harvested)
        return harvested
    # What a process that died left.
    shutil.rmtree(quarantine, ignore_errors=True)
    try:
        with refusals():
            import_checked(repository, out / "pack", quarantine, origin, tip)
    finally:
        shutil.rmtree(quarantine, ignore_errors=True)
    note(harvested)
    with repository.lock():
        repository.move_branch(branch, new=tip, old=start)
    return harvested


def read_tip(out: Path) -> str:
    """Return the id that the harvest's container wrote.

    Raises:
        HarvestRefusedError: There is none.
    """
    tip = _read_text(out / "tip", 100)
    if not _OBJECT_ID.fullmatch(tip):
        raise HarvestRefusedError("the harvest gave no commit")
    return tip


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what git says of hostile objects into a refusal.

    Raises:
        HarvestRefusedError: A rule is broken, or git took too long.
        OSError: There is no room.
    """
    try:
        yield
    except OutputTooLongError as error:
        raise HarvestRefusedError(f"too much to check: {one_line(error.message)}") from error
    except RepositoryError as error:
        if isinstance(error, GitCommandError) and FULL in error.stderr:
            raise OSError(errno.ENOSPC, FULL) from error
        raise HarvestRefusedError(one_line(error.message)) from error


def import_checked(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, tip: str
) -> Git:
    """Check a pack in a quarantine that is made for it, and let its objects in.

    Returns:
        Git in the quarantine, which is the caller's to remove.

    Raises:
        HarvestRefusedError: A rule is broken.
        GitCommandError: Git refused it.
        OutputTooLongError: There is too much to check.
    """
    git = unpack(repository, pack, quarantine, origin, "--strict")
    _check_history(git, origin, tip=tip)
    room = min(origin.room, MAX_CHECKOUT)
    check_trees(git, base=origin.base, tip=tip, repository=repository, room=room)
    with repository.lock():
        accept_pack(repository, quarantine)
    return git


def unpack(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, *strictly: str
) -> Git:
    """Unpack a pack into a quarantine that is made for it; return git there.

    Args:
        repository: Whose objects are of the same kind.
        pack: What the harvest's container wrote.
        quarantine: Is made.
        origin: What the worker started from.
        strictly: `--strict`, unless objects that git refuses are to be there too.

    Raises:
        HarvestRefusedError: It has too many objects, or too large ones.
        GitCommandError: Git refused it.
    """
    git = _make_quarantine(repository, quarantine, origin)
    with open_handed_over(pack) as file:
        size = os.fstat(file.fileno()).st_size
        git.run(
            "index-pack", "--stdin", "--fix-thin", *strictly, "--threads=1",
            f"--max-input-size={MAX_PACK}", stdin=file, env=_FRUGAL,
        )  # fmt: skip
    _check_objects(git, quarantine, size - _TRAILER[repository.object_format])
    return git


def accept_pack(repository: Repository, quarantine: Path) -> None:
    """Bring the objects of a checked pack into the repository, checked against what it has.

    Args:
        repository: Where they go.
        quarantine: A git directory that has one pack.

    Raises:
        GitCommandError: They break a rule of git's, or something that they need is not there.
    """
    (pack,) = (quarantine / "objects" / "pack").glob("*.pack")
    with pack.open("rb", buffering=0) as file:
        count = int.from_bytes(file.read(12)[8:])
        file.seek(0)
        # As a fetch does it, in a third of the time: few lie loose, of many the pack is kept.
        few = count < _FEW
        command = ("unpack-objects", "-q") if few else ("index-pack", "--stdin", "--threads=1")
        git = repository.git.within(UNTRUSTED)
        git.run(*command, "--strict", stdin=file, env=_FRUGAL)


def _make_quarantine(repository: Repository, quarantine: Path, origin: Origin) -> Git:
    """Make a repository that knows what the worker was given.

    Were it to know all of the user's objects, a worker could make a commit or file that it was not
    given part of its own history, by its id alone.
    """
    make_bare(quarantine, object_format=repository.object_format)
    (quarantine / "objects" / "info" / "alternates").write_text(f"{origin.objects}\n")
    if origin.shallow:
        lines = (f"{commit}\n" for commit in sorted(origin.shallow))
        (quarantine / "shallow").write_text("".join(lines))
    # It does not outlive the check: what is let in is made safe against a crash where it goes.
    return Git(quarantine, config={"core.fsync": "none"}, env=_FRUGAL, limits=UNTRUSTED)


def _check_objects(git: Git, quarantine: Path, end: int) -> None:
    """Check number, kind and size of all objects in a pack before any of them is read whole.

    Args:
        git: The quarantine's.
        quarantine: Its git directory.
        end: Bytes of the pack as it was handed over: behind them is what its deltas stand on.

    Raises:
        HarvestRefusedError: There are too many, or they are too large.
    """
    (index,) = (quarantine / "objects" / "pack").glob("*.idx")
    with tempfile.TemporaryFile() as names, index.open("rb") as file:
        with git.reading("show-index", stdin=file) as lines:
            for number, line in enumerate(records(lines, b"\n")):
                if number >= MAX_OBJECTS:
                    raise HarvestRefusedError(f"it has more than {MAX_OBJECTS} new objects")
                offset, name, *_ = line.split(b" ")
                if int(offset) < end:
                    names.write(name + b"\n")
        total = 0
        for kind, size in _kinds(git, names):
            total += size
            if kind in (b"commit", b"tag") and size > MAX_MESSAGE:
                raise HarvestRefusedError(
                    f"a commit has {size} bytes, its message included; {MAX_MESSAGE} may come in"
                )
            _check_total(total, MAX_CHECKOUT)


def _check_history(git: Git, origin: Origin, *, tip: str) -> None:
    base = origin.base
    if git.text("cat-file", "-t", tip) != "commit":
        raise HarvestRefusedError("the harvest's tip is not a commit")
    if origin.on_top and not git.succeeds("merge-base", "--is-ancestor", base, tip):
        raise HarvestRefusedError("the worker's history is not on top of its base")
    # Connectivity, too: everything the new commits need was in the pack, or given to the worker.
    git.run("rev-list", "--objects", "--quiet", tip, f"^{base}")


def check_trees(
    git: Git, *, base: str, tip: str, repository: Repository, room: int = MAX_CHECKOUT
) -> None:
    """Check the trees of every new commit: one in the middle harms who looks at the history.

    Args:
        git: Has their objects.
        base: What it has is the user's own, and may stay.
        tip: The last of the new commits.
        repository: Knows where workers' worktrees lie.
        room: Bytes that the files which differ from the base may take, checked out.

    Raises:
        HarvestRefusedError: A rule is broken.
        GitCommandError: An object is missing or damaged.
        OutputTooLongError: There is too much to check.
    """
    limit = MAX_COMMITS * (len(base) + 1)
    log = git.listing("log", "--format=%T", f"{base}..{tip}", limit=limit)
    order = {
        "kind": "harvest",
        "base": git.text("rev-parse", f"{base}^{{tree}}"),
        "roots": sorted(set(log.decode().split())),
        "reserved": repository.reserved(),
        "room": _PATH_MAX - repository.longest_worktree() - 1,
        "bounds": {
            "entries": MAX_ENTRIES, "names": MAX_PATHS, "tree": MAX_TREE, "total": MAX_TREES,
        },
    }  # fmt: skip
    _consult(git, order)
    check_size(git, base=base, tip=tip, room=room)


def check_merged(git: Git, *, before: Iterable[str], merged: Iterable[str]) -> None:
    """Refuse names that differ in case alone in the trees `merged`, and in none of `before`.

    Raises:
        HarvestRefusedError: There are such names.
        GitCommandError: An object is missing or damaged.
    """
    _consult(git, {"kind": "merge", "before": list(before), "roots": list(merged)})


def _consult(git: Git, order: Mapping[str, Any]) -> None:
    """Have trees checked in a process of its own, which may be killed and we live on."""
    program = (sys.executable, "-I", "-S", "-c", _TREE_RULES, str(Path(__file__).parent))
    verdict = json.loads(git.consult(program, json.dumps(order).encode()))
    if "refused" in verdict:
        raise HarvestRefusedError(one_line(str(verdict["refused"]), limit=500))


def check_size(git: Git, *, base: str, tip: str, room: int) -> None:
    """Refuse a commit whose files that differ from the base take more than `room` bytes.

    Raises:
        HarvestRefusedError: They do.
    """
    form = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames")
    with tempfile.TemporaryFile() as names:
        with git.reading(*form, base, tip) as raw:
            # `:old_mode new_mode old new status`, NUL, path, NUL: a path may look like the line
            # before it.
            for number, record in enumerate(records(raw, b"\0")):
                if number % 2 == 0:
                    names.write(record.split(b" ")[3] + b"\n")
        _check_total(sum(size for _, size in _kinds(git, names)), room)


def _check_total(total: int, room: int) -> None:
    if total > room:
        raise HarvestRefusedError(f"the changed files have {total} bytes, too many to check out")


def _kinds(git: Git, names: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield kind and size of the objects whose ids are in a file, a line each."""
    names.seek(0)
    form = ("cat-file", "--batch-check=%(objecttype) %(objectsize)", "--buffer")
    with git.reading(*form, stdin=names) as answers:
        for line in records(answers, b"\n"):
            kind, _, size = line.partition(b" ")
            # What was deleted has no size: its id is all zeros, and missing.
            if size.isdigit():
                yield kind, int(size)


def open_handed_over(path: Path) -> BinaryIO:
    """Open a file that the harvest's container wrote, following no link.

    Raises:
        HarvestRefusedError: It is no regular file.
    """
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise HarvestRefusedError(f"`{path.name}` of the harvest is not a file") from error
    except OSError as error:
        raise HarvestRefusedError(f"the harvest left no `{path.name}`") from error


def _read_text(path: Path, limit: int) -> str:
    with open_handed_over(path) as file:
        return file.read(limit).decode("utf-8", "replace").strip()


def _read_notes(path: Path) -> tuple[str, ...]:
    try:
        notes = json.loads(_read_text(path, 64 * 1024))
    except HarvestRefusedError:
        return ()
    except (ValueError, RecursionError):
        notes = None
    if not isinstance(notes, list):
        return ("what was left out is not known: the harvest's notes cannot be read",)
    return tuple(one_line(note) for note in notes[:20] if isinstance(note, str))
