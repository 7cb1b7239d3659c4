"""Step two of a harvest, on the host: one pack and one object id are checked and let in.

Nothing else that a worker wrote is ever read by the host's git. The rules are those of
`docs/architecture.md`; a pack that breaks one is refused whole and the branch stays at its base.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import OrchestratorError
from orchestrator.git import FULL, Git, GitCommandError, OutputTooLongError, make_bare
from orchestrator.regular import NotRegularError, open_regular
from orchestrator.repository import DIRECTORIES, Repository
from orchestrator.sanitize import one_line
from orchestrator.trees import Forest, TooDeepError

MAX_PACK = 1024**3
"""Bytes of one worker's pack."""
MAX_ENTRIES = 200_000
"""Files and directories of a tree, unless its base has half as many already."""
MAX_CHECKOUT = 4 * 1024**3
"""Bytes of all files that differ from the base, unpacked."""
_LISTING = 64 * 1024**2
"""Bytes of a list of what is new; a tree of few objects can stand for more files than there are."""
# A delta of a few bytes can stand for gigabytes, which git would unpack in memory.
_FRUGAL = {"GIT_ALLOC_LIMIT": "256m"}
_FEW = 100
"""Objects that are kept as files of their own, as git does by default."""
_PATH_MAX = 4095
_NAME_MAX = 255
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

    Raises:
        HarvestRefusedError: A rule was broken, or the files are not what they should be.
        GitCommandError: The branch is not there any more.
    """
    tip = _read_text(out / "tip", 100)
    if not _OBJECT_ID.fullmatch(tip):
        raise HarvestRefusedError("the harvest gave no commit")
    notes = (*_read_notes(out / "notes"), *notes)
    harvested = Harvested(tip, notes)
    start = origin.start or origin.base
    if tip == start:
        note(harvested)
        return harvested
    # What a process that died left.
    shutil.rmtree(quarantine, ignore_errors=True)
    try:
        _import_checked(repository, out / "pack", quarantine, origin, tip)
    except OutputTooLongError as error:
        raise HarvestRefusedError(f"too much to check: {one_line(error.message)}") from error
    except GitCommandError as error:
        if FULL in error.stderr:
            raise OSError(errno.ENOSPC, FULL) from error
        raise HarvestRefusedError(one_line(error.message)) from error
    finally:
        shutil.rmtree(quarantine, ignore_errors=True)
    note(harvested)
    with repository.lock():
        repository.move_branch(branch, new=tip, old=start)
    return harvested


def _import_checked(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, tip: str
) -> None:
    git = _make_quarantine(repository, quarantine, origin)
    with _open(pack) as file:
        git.run(
            "index-pack", "--stdin", "--fix-thin", "--strict", "--threads=1",
            f"--max-input-size={MAX_PACK}", stdin=file, env=_FRUGAL,
        )  # fmt: skip
    _check_history(git, base=origin.base, tip=tip)
    room = min(origin.room, MAX_CHECKOUT)
    check_trees(git, base=origin.base, tip=tip, top=repository.top, room=room)
    with repository.lock():
        let_in(repository, quarantine)


def let_in(repository: Repository, quarantine: Path) -> None:
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
        repository.git.run(*command, "--strict", stdin=file, env=_FRUGAL)


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
    return Git(quarantine, config={"core.fsync": "none"})


def _check_history(git: Git, *, base: str, tip: str) -> None:
    if git.text("cat-file", "-t", tip) != "commit":
        raise HarvestRefusedError("the harvest's tip is not a commit")
    if not git.succeeds("merge-base", "--is-ancestor", base, tip):
        raise HarvestRefusedError("the worker's history is not on top of its base")
    # Connectivity, too: everything the new commits need was in the pack, or given to the worker.
    new = git.listing(
        "rev-list", "--objects", "--no-object-names", tip, f"^{base}", limit=_LISTING
    )  # fmt: skip
    _check_total(git, new, MAX_CHECKOUT)


def check_trees(git: Git, *, base: str, tip: str, top: Path, room: int = MAX_CHECKOUT) -> None:
    """Check the trees of every new commit: one in the middle harms who looks at the history.

    Args:
        git: Has their objects.
        base: What it has is the user's own, and may stay.
        tip: The last of the new commits.
        top: Where workers' worktrees lie.
        room: Bytes that the files which differ from the base may take, checked out.

    Raises:
        HarvestRefusedError: A rule is broken.
        GitCommandError: An object is missing or damaged.
        OutputTooLongError: There is too much to check.
    """
    forest = Forest(git)
    before = git.text("rev-parse", f"{base}^{{tree}}")
    forest.read([before])
    known = _Known(forest, before)
    log = git.listing("log", "--format=%T", f"{base}..{tip}", limit=_LISTING)
    roots = set(log.decode().split())
    try:
        forest.read(roots)
    except TooDeepError as error:
        raise HarvestRefusedError("a path is too long to check out") from error
    for name, _ in forest.gitlinks - known.gitlinks:
        shown = one_line(os.fsdecode(name))
        raise HarvestRefusedError(f"a commit adds a submodule or nested repository: {shown}")
    _check_disguised(forest, roots, known)
    for root in roots:
        _check_extent(forest, root, known, top)
    _check_links(git, forest.links - known.links)
    _check_size(git, base=base, tip=tip, room=room)


class _Known:
    """What the base has: that much is the user's own, and may stay."""

    def __init__(self, forest: Forest, root: str) -> None:
        self.gitlinks, self.links, self.disguised = forest.gitlinks, forest.links, forest.disguised
        self.is_disguised = root in forest.disguised
        self.names, self.longest_name = forest.names(root), forest.longest_name
        self.size, self.longest = forest.size(root), forest.longest(root)


def _check_disguised(forest: Forest, roots: AbstractSet[str], known: _Known) -> None:
    """Refuse a git directory that lies in a tree as ordinary files: git would walk into it."""
    allowed = known.disguised | (roots if known.is_disguised else frozenset())
    if forest.disguised - allowed:
        raise HarvestRefusedError(
            "a git directory lies in the tree: a directory has `HEAD` beside "
            "`objects`, `refs` or `commondir`"
        )


def _check_extent(forest: Forest, root: str, known: _Known, top: Path) -> None:
    most = max(MAX_ENTRIES, 2 * known.size)
    if forest.size(root) > most:
        raise HarvestRefusedError(f"a commit has more than {most} files, too many to check out")
    for name in forest.names(root) - known.names:
        if name.startswith(DIRECTORIES.encode()):
            shown = one_line(os.fsdecode(name))
            raise HarvestRefusedError(f"a file lies where workers' worktrees are: {shown}")
    room = _PATH_MAX - len(os.fsencode(top / f"{DIRECTORIES}00")) - 1
    too_long = forest.longest(root) > max(room, known.longest)
    if too_long or forest.longest_name > max(_NAME_MAX, known.longest_name):
        raise HarvestRefusedError("a path is too long to check out")


def _check_links(git: Git, links: Iterable[str]) -> None:
    ids = "".join(f"{link}\n" for link in links).encode()
    if not all(0 < size <= _PATH_MAX for size in _sizes(git, ids)):
        raise HarvestRefusedError("a symbolic link is empty or too long to be made")
    targets = git.listing("cat-file", "--batch=", "--buffer", stdin=ids, limit=_LISTING)
    if b"\0" in targets:
        raise HarvestRefusedError("a symbolic link has a target that no path can be")


def _check_size(git: Git, *, base: str, tip: str, room: int) -> None:
    raw = git.run("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base, tip)
    # `:old_mode new_mode old new status`, NUL, path, NUL: a path may look like the line before it.
    lines = raw.split(b"\0")[::2]
    _check_total(git, b"".join(line.split(b" ")[3] + b"\n" for line in lines if line), room)


def _check_total(git: Git, ids: bytes, room: int) -> None:
    total = sum(_sizes(git, ids))
    if total > room:
        raise HarvestRefusedError(f"the changed files have {total} bytes, too many to check out")


def _sizes(git: Git, ids: bytes) -> list[int]:
    sizes = git.run("cat-file", "--batch-check=%(objectsize)", "--buffer", stdin=ids)
    # What was deleted has no size: its id is all zeros, and missing.
    return [int(size) for size in sizes.splitlines() if size.isdigit()]


def _open(path: Path) -> BinaryIO:
    """Open a file that a helper wrote."""
    try:
        return open_regular(path)
    except NotRegularError as error:
        raise HarvestRefusedError(f"`{path.name}` of the harvest is not a file") from error
    except OSError as error:
        raise HarvestRefusedError(f"the harvest left no `{path.name}`") from error


def _read_text(path: Path, limit: int) -> str:
    with _open(path) as file:
        return file.read(limit).decode("utf-8", "replace").strip()


def _read_notes(path: Path) -> tuple[str, ...]:
    try:
        notes = json.loads(_read_text(path, 64 * 1024))
    except (ValueError, RecursionError, HarvestRefusedError):
        return ()
    if not isinstance(notes, list):
        return ()
    return tuple(one_line(note) for note in notes[:20] if isinstance(note, str))
