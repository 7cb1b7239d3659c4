"""Submodules of what a run starts from, found on this machine: nothing is ever fetched.

Their objects come from the user's own `.git/modules`, or from a git directory in the checkout. Each
worker gets the files, and a private git directory like that of the repository itself. In the
worktree that the user sees they are plain files: no git of the user's walks into them.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.errors import RepositoryError
from orchestrator.git import Git, GitCommandError, make_bare
from orchestrator.objects import History, pack_commit
from orchestrator.repository import Repository, filters_off
from orchestrator.sanitize import one_line

FOLDER = "submodules"
"""In the base's objects, and in a harvest's git directory: one directory for each submodule."""
RECORD = "submodules.json"
PATCH = "submodule-{}.patch"
"""In what a harvest hands over, and in the worker's state directory."""
_MOST = 1000
_SHOWN = 5
_MOST_BYTES = 256 * 1024**2
"""Of a patch."""
_GITLINK = b"160000 commit "


class Submodule(BaseModel):
    """One that is there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Below the repository's top, also of one inside another."""
    commit: str
    git_dir: Path
    """The user's."""
    number: int
    """Names its places: what a repository calls it may be any path."""
    shallow: tuple[str, ...] = ()
    """Commits that are cut off from their parents."""
    config: dict[str, str] = {}
    """What switches the user's filters off in it."""


class Submodules(BaseModel):
    """All of a base's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    found: tuple[Submodule, ...] = ()
    """Those inside another come after it."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Parent:
    """A repository whose commit is looked into."""

    git: Git
    git_dirs: tuple[Path, ...]
    """Where its `modules` are."""
    checkout: Path
    """Where the user has it; need not be there."""
    commit: str
    prefix: str
    """Its path with a `/`, or nothing."""


def ready_submodules(
    repository: Repository, base: str, objects: Path, *, history: History
) -> Submodules:
    """Find the base's submodules, and pack what their commits reach, unless that was done.

    Args:
        repository: The user's.
        base: What the run starts from.
        objects: The base's object directory, complete; they are put beside its packs.
        history: As for the base.
    """
    record = objects / RECORD
    try:
        return TypeAdapter(Submodules).validate_json(record.read_bytes())
    except (OSError, ValidationError):
        shutil.rmtree(objects / FOLDER, ignore_errors=True)
    git_dirs = tuple(dict.fromkeys((repository.git_dir, repository.common_dir)))
    top = _Parent(repository.git, git_dirs, repository.top, base, "")
    search = _Search(objects / FOLDER, history)
    search.look_into(top)
    known = Submodules(found=tuple(search.found), notices=tuple(search.notices()))
    if known.found:
        record.write_text(known.model_dump_json())
    return known


class _Search:
    """Goes through a repository's submodules, and theirs."""

    def __init__(self, objects: Path, history: History) -> None:
        self.found: list[Submodule] = []
        self._missing: list[str] = []
        self._dirty: list[str] = []
        self._objects = objects
        self._history = history

    def look_into(self, parent: _Parent) -> None:
        names = _names(parent.git, parent.commit)
        for path, commit in _gitlinks(parent.git, parent.commit) if names else ():
            if path in names and len(self.found) < _MOST:
                self._take(parent, path, commit, names[path])

    def _take(self, parent: _Parent, path: str, commit: str, name: str) -> None:
        full, checkout = parent.prefix + path, parent.checkout / path
        places = (*(one / "modules" / name for one in parent.git_dirs), checkout / ".git")
        git_dir = next((place for place in places if _has(place, commit)), None)
        packed = None if git_dir is None else self._pack(git_dir, commit)
        if git_dir is None or packed is None:
            self._missing.append(full)
            return
        git = Git(git_dir)
        if _is_dirty(git_dir, checkout):
            self._dirty.append(full)
        self.found.append(
            Submodule(
                path=full, commit=commit, git_dir=git_dir, number=len(self.found),
                shallow=tuple(sorted(packed)), config=_without_filters(git),
            )
        )  # fmt: skip
        self.look_into(_Parent(git, (git_dir,), checkout, commit, f"{full}/"))

    def _pack(self, git_dir: Path, commit: str) -> frozenset[str] | None:
        place = self._objects / str(len(self.found))
        try:
            return pack_commit(Git(git_dir), git_dir, commit, place, history=self._history)
        except GitCommandError:
            # Some of it was never fetched.
            shutil.rmtree(place, ignore_errors=True)
            return None

    def notices(self) -> Iterator[str]:
        if self._missing:
            paths = " ".join(one_line(path) for path in self._missing[:_SHOWN])
            yield (
                f"submodules that are not on this machine are empty for the workers: {paths}"
                f"{_more(self._missing)}; `git submodule update --init --recursive` fetches them"
            )
        if self._dirty:
            paths = " ".join(one_line(path) for path in self._dirty[:_SHOWN])
            yield (
                "submodules have uncommitted changes, which the workers do not see: "
                f"{paths}{_more(self._dirty)}"
            )


def _more(paths: list[str]) -> str:
    rest = len(paths) - _SHOWN
    return f" and {rest} more" if rest > 0 else ""


def _without_filters(git: Git) -> dict[str, str]:
    return filters_off(os.fsdecode(git.run("config", "--list", "--name-only", "-z")).split("\0"))


def _names(git: Git, commit: str) -> dict[str, str]:
    """Read a commit's `.gitmodules`: names by paths."""
    try:
        git.run("rev-parse", "--verify", "--quiet", f"{commit}:.gitmodules")
    except GitCommandError:
        return {}
    try:
        answer = git.run("config", "--blob", f"{commit}:.gitmodules", "--list", "-z")
    except GitCommandError:
        return {}
    found = {}
    for entry in os.fsdecode(answer).split("\0"):
        key, _, value = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if key == f"submodule.{name}.path" and _is_usable(name):
            found[value] = name
    return found


def _is_usable(name: str) -> bool:
    """Tell whether a name can be a path below `modules`."""
    return all(part not in ("", ".", "..", ".git") for part in name.split("/"))


def _gitlinks(git: Git, commit: str) -> Iterator[tuple[str, str]]:
    listing = git.run("ls-tree", "-r", "-z", "--full-tree", commit)
    for entry in listing.split(b"\0"):
        if entry.startswith(_GITLINK):
            found, _, path = entry.removeprefix(_GITLINK).partition(b"\t")
            yield os.fsdecode(path), found.decode()


def _has(git_dir: Path, commit: str) -> bool:
    if git_dir.is_symlink() or not (git_dir / "objects").is_dir():
        return False
    try:
        Git(git_dir).run("cat-file", "-e", f"{commit}^{{commit}}")
    except RepositoryError:
        return False
    return True


def _is_dirty(git_dir: Path, checkout: Path) -> bool:
    if not os.path.lexists(checkout / ".git"):
        return False
    try:
        return bool(Git(git_dir, work_tree=checkout).run("status", "--porcelain", "-z"))
    except RepositoryError:
        return False


def lay_out(
    submodules: Iterable[Submodule], tree: Path, scratch: Path, *, index: Git | None
) -> tuple[Submodule, ...]:
    """Write the files of submodules into a tree of the host's making.

    Args:
        submodules: Those of the base.
        tree: The tree; where a submodule belongs, it has a directory.
        scratch: A directory for their indexes, named by their numbers.
        index: Git on the index that tells which of them are still there; None: all are.

    Returns:
        Those that were written.
    """
    written: dict[str, Submodule] = {}
    scratch.mkdir(exist_ok=True)
    for one in submodules:
        place = tree / one.path
        # A sparse checkout leaves some out; a link in its way leads elsewhere.
        if place.resolve() != tree.resolve() / one.path or not place.is_dir():
            continue
        is_inner = any(one.path.startswith(f"{path}/") for path in written)
        if index is not None and not is_inner and not _is_still_there(index, one):
            continue
        git = _git(one, place, scratch)
        git.run("read-tree", one.commit)
        git.run("checkout-index", "--all", "--force", "--quiet")
        written[one.path] = one
    return tuple(written.values())


def _is_still_there(index: Git, one: Submodule) -> bool:
    wanted = f"160000 {one.commit} 0\t".encode() + os.fsencode(one.path) + b"\0"
    literal = f":(top,literal){one.path}"
    return index.run("ls-files", "-s", "-z", "--", literal) == wanted


def _git(one: Submodule, place: Path, scratch: Path) -> Git:
    config = {**one.config, "core.checkStat": "minimal", "core.trustctime": "false"}
    return Git(one.git_dir, work_tree=place, index=scratch / str(one.number), config=config)


def refresh(submodules: Iterable[Submodule], tree: Path, scratch: Path) -> None:
    """Tell the indexes of the files as they lie there by now."""
    for one in submodules:
        _git(one, tree / one.path, scratch).succeeds("update-index", "-q", "--refresh")


@dataclass(frozen=True, kw_only=True)
class Inside:
    """What a submodule's git directories are to be like."""

    object_format: str
    settings: str
    """The text of their configuration, beside what each has of its own."""
    workspace: str
    store: str
    objects: str
    """Where the container has the tree, the store, and the base's objects."""


def make_git_dirs(
    submodules: Iterable[Submodule], inside: Inside, *, scratch: Path, store: Path, harvest: Path
) -> None:
    """Make a worker's git directory of every submodule, and one for its harvest."""
    for one in submodules:
        tree = f"\tworktree = {_quoted(f'{inside.workspace}/{one.path}')}\n"
        private = store / "modules" / str(one.number)
        active = "[submodule]\n\tactive = .\n"
        _make_git_dir(private, one, inside, f"[core]\n\tbare = false\n{tree}{active}")
        alternates = private / "objects" / "info" / "alternates"
        alternates.write_text(f"{inside.objects}/{FOLDER}/{one.number}\n")
        ours = harvest / FOLDER / str(one.number)
        _make_git_dir(ours, one, inside, "[core]\n\tbare = false\n")
        for git_dir in (private, ours):
            shutil.copyfile(scratch / str(one.number), git_dir / "index")


def _make_git_dir(git_dir: Path, one: Submodule, inside: Inside, config: str) -> None:
    make_bare(git_dir, object_format=inside.object_format)
    (git_dir / "HEAD").write_text(f"{one.commit}\n")
    with (git_dir / "config").open("a") as file:
        file.write(config + inside.settings)
    (git_dir / "info").mkdir()
    (git_dir / "info" / "exclude").write_text(".git-of-a-nested-repository*\n")
    if one.shallow:
        (git_dir / "shallow").write_text("".join(f"{commit}\n" for commit in one.shallow))


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def files_of(submodules: Iterable[Submodule], tree: Path) -> Iterator[str]:
    """List the files of submodules in a tree of the host's making."""
    for one in submodules:
        for folder, _, names in os.walk(tree / one.path):
            inside = os.path.relpath(folder, tree)
            yield from (f"{inside}/{name}" for name in names)


def point_to(submodules: Iterable[Submodule], tree: Path, store: str) -> None:
    """Write what a worker sees as `.git` of every submodule.

    Args:
        submodules: Those that were laid out.
        tree: The worker's own tree, or what lies over it.
        store: Where the container has the worker's store.
    """
    for one in submodules:
        place = tree / one.path
        place.mkdir(parents=True, exist_ok=True)
        (place / ".git").write_text(f"gitdir: {store}/modules/{one.number}\n")


def write_submodules(submodules: Iterable[Submodule], *directories: Path) -> None:
    """Write down, for the harvest, which submodules a worker was given: path and commit."""
    text = json.dumps({one.path: [one.number, one.commit] for one in submodules})
    for directory in directories:
        (directory / RECORD).write_text(text)


def keep_patches(root: Path, out: Path) -> tuple[str, ...]:
    """Keep what a worker changed in submodules, which is on no branch; say where.

    Args:
        root: The worker's state directory.
        out: What the harvest handed over.

    Raises:
        OSError: There is no room.
    """
    try:
        given = json.loads((root / RECORD).read_text())
    except FileNotFoundError:
        return ()
    return tuple(
        note
        for path, (number, _) in given.items()
        if (note := _keep_patch(path, out / PATCH.format(number), root / PATCH.format(number)))
    )


def _keep_patch(path: str, made: Path, kept: Path) -> str | None:
    """Copy one, unless it is not what it should be: the worker's user wrote it."""
    try:
        descriptor = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file, kept.open("wb") as copy:
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode) and info.st_size <= _MOST_BYTES:
            shutil.copyfileobj(file, copy)
            return f"changes in the submodule {one_line(path)} are on no branch, but in {kept}"
    kept.unlink()
    return f"changes in the submodule {one_line(path)} are on no branch, and too large to be kept"
