"""Find the submodules of a run's base commit on this machine, and what no worker can see of it.

Nothing is downloaded. The objects come from the user's `.git/modules`, or from a git directory in
the checkout. Each worker gets the submodules' files, and private git directories like that of the
repository itself. In the worktree that the user sees, they are ordinary files, so that the user's
git does not enter them.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.git.command import Git
from orchestrator.repository.programs import Use
from orchestrator.repository.repository import Repository

FOLDER = "submodules"
"""Name of a directory with a numbered directory for each submodule."""
RECORD = "submodules.json"
_MOST = 1000
_SHOWN = 5
_GITLINK, _LINK = b"160000 commit ", b"120000 blob "
_MOST_LINKS = 1000
"""Maximum number of links whose targets are read."""
_LONGEST = 4096


class Submodule(BaseModel):
    """A submodule whose commit is on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Path from the top of the outermost repository, even if the submodule is nested."""
    commit: str
    git_dir: Path
    """The user's git directory of the submodule."""
    number: int
    """Number that names the submodule's directories, because its own name may be any path."""
    shallow: tuple[str, ...] = ()
    """Commits of the submodule whose parents are missing on this machine."""


class Submodules(BaseModel):
    """All submodules of a base commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    found: tuple[Submodule, ...] = ()
    """The submodules; a nested submodule comes after the one that contains it."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Parent:
    """A repository in whose commit submodules are searched for."""

    git: Git
    git_dirs: tuple[Path, ...]
    """Git directories whose `modules` directory is searched."""
    checkout: Path
    """The user's checkout of the repository, which need not exist."""
    commit: str
    prefix: str
    """The repository's path followed by `/`; empty for the outermost repository."""


Pack = Callable[[Git, Path, str, Path], frozenset[str]]
"""Packs what a commit reaches from a repository with a certain git directory into a new directory,
and returns the commits whose parents are not in it.
"""


def ready_submodules(repository: Repository, base: str, objects: Path, pack: Pack) -> Submodules:
    """Find the submodules of the base commit and pack their objects, unless that was done before.

    Args:
        repository: The user's repository.
        base: The commit that the run starts from.
        objects: The base's complete object directory; the submodules' packs are added below it.
        pack: Packs the commit of a submodule.
    """
    record = objects / RECORD
    try:
        return TypeAdapter(Submodules).validate_json(record.read_bytes())
    except (OSError, ValidationError):
        shutil.rmtree(objects / FOLDER, ignore_errors=True)
    git_dirs = tuple(dict.fromkeys((repository.git_dir, repository.common_dir)))
    top = _Parent(repository.git, git_dirs, repository.top, base, "")
    search = _Search(objects / FOLDER, pack)
    search.look_into(top)
    known = Submodules(found=tuple(search.found), notices=tuple(search.notices()))
    if known.found:
        record.write_text(known.model_dump_json())
    return known


class _Search:
    """Searches a repository's submodules recursively."""

    def __init__(self, objects: Path, pack: Pack) -> None:
        self.found: list[Submodule] = []
        self._missing: list[str] = []
        self._dirty: list[str] = []
        self._objects = objects
        self._pack_into = pack

    def look_into(self, parent: _Parent) -> None:
        names = submodules_by_path(parent.git, parent.commit)
        for entry in parent.git.tree(parent.commit) if names else ():
            commit, _, path = os.fsdecode(entry.removeprefix(_GITLINK)).partition("\t")
            is_gitlink = entry.startswith(_GITLINK)
            if is_gitlink and path in names and len(self.found) < _MOST:
                self._take(parent, path, commit, names[path])

    def _take(self, parent: _Parent, path: str, commit: str, name: str) -> None:
        full, checkout = parent.prefix + path, parent.checkout / path
        places = (*(git_dir / "modules" / name for git_dir in parent.git_dirs), checkout / ".git")
        git_dir = next((place for place in places if _has(place, commit)), None)
        objects, packed = self._objects / str(len(self.found)), None
        try:
            if git_dir is not None:
                packed = self._pack_into(Git(git_dir), git_dir, commit, objects)
        except GitCommandError:
            # Some objects of the submodule were never fetched.
            shutil.rmtree(objects, ignore_errors=True)
        if git_dir is None or packed is None:
            self._missing.append(full)
            return
        git = Git(git_dir)
        if _is_dirty(git_dir, checkout):
            self._dirty.append(full)
        self.found.append(
            Submodule(
                path=full, commit=commit, git_dir=git_dir, number=len(self.found),
                shallow=tuple(sorted(packed)),
            )
        )  # fmt: skip
        self.look_into(_Parent(git, (git_dir,), checkout, commit, f"{full}/"))

    def notices(self) -> Iterator[str]:
        if self._missing:
            paths = " ".join(one_line(path) for path in self._missing[:_SHOWN])
            yield (
                "workers get empty directories for submodules that are not on this "
                f"machine: {paths}{_more(self._missing)}; fetch them with `git "
                "submodule update --init --recursive`"
            )
        if self._dirty:
            paths = " ".join(one_line(path) for path in self._dirty[:_SHOWN])
            yield (
                "workers do not see the uncommitted changes in submodules: "
                f"{paths}{_more(self._dirty)}"
            )


def _more(paths: list[str]) -> str:
    rest = len(paths) - _SHOWN
    return f" and {rest} more" if rest > 0 else ""


def submodules_by_path(git: Git, commit: str) -> dict[str, str]:
    """Return the submodules that a commit's `.gitmodules` names, by path."""
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
        # protection: submodule-names-cannot-lead-out-of-modules
        if key == f"submodule.{name}.path" and _is_usable(name):
            found[value] = name
    return found


def _is_usable(name: str) -> bool:
    """Return whether a submodule's name can be a safe path below the directory `modules`."""
    return all(part not in ("", ".", "..", ".git") for part in name.split("/"))


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
        git = Git(git_dir, work_tree=checkout, use=Use.STATUS)
        return bool(git.run("status", "--porcelain", "-z"))
    except RepositoryError:
        return False


def dead_ends(repository: Repository, commit: str) -> Iterator[str]:
    """Yield notices about repositories without `.gitmodules`, and links with absolute targets.

    Raises:
        GitCommandError: The commit cannot be read.
    """
    entries = [
        entry for entry in repository.git.tree(commit) if entry.startswith((_GITLINK, _LINK))
    ]
    links = [entry.removeprefix(_LINK) for entry in entries if entry.startswith(_LINK)]
    inner = [
        os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(_GITLINK)
    ]
    named = submodules_by_path(repository.git, commit) if inner else {}
    if unnamed := [path for path in inner if path not in named]:
        yield (
            f"separate repositories are committed that `.gitmodules` does not name: "
            f"{_some(unnamed)}; workers get empty directories, and what they write there is not "
            "committed"
        )
    if away := list(_absolute_links(repository.git, links)):
        yield f"committed links lead out of the repository: {_some(away)}; workers see no target"


def _absolute_links(git: Git, links: Sequence[bytes]) -> Iterator[str]:
    paths: dict[str, list[str]] = {}
    for found, _, path in islice((link.partition(b"\t") for link in links), _MOST_LINKS):
        paths.setdefault(found.decode(), []).append(os.fsdecode(path))
    if not paths:
        return
    try:
        sized = split_lines(git.text("cat-file", "--batch-check", stdin=_lines(paths)))
        rows = [line.split(" ") for line in sized]
        short = [row[0] for row in rows if row[1] == "blob" and int(row[2]) <= _LONGEST]
        answer = git.run("cat-file", "--batch", stdin=_lines(short))
    except GitCommandError:
        # A partial clone lacks objects; the run names what it needs of them.
        return
    for name in short:
        header, _, answer = answer.partition(b"\n")
        size = int(header.split()[2])
        target, answer = os.fsdecode(answer[:size]), answer[size + 1 :]
        if target.startswith("/"):
            yield from (f"{path} -> {target}" for path in paths[name])


def _lines(names: Sequence[str] | dict[str, list[str]]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(f"`{one_line(path, limit=100)}`" for path in paths[:_SHOWN])
    rest = len(paths) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
