"""Submodules of what a run starts from, found on this machine: nothing is ever fetched.

Their objects come from the user's own `.git/modules`, or from a git directory in the checkout. Each
worker gets the files, and a private git directory like that of the repository itself. In the
worktree that the user sees they are plain files: no git of the user's walks into them.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.errors import RepositoryError
from orchestrator.git.command import Git, GitCommandError
from orchestrator.git.object_packs import History, pack_commit
from orchestrator.git.repository import Repository, filters_off
from orchestrator.text.sanitize import one_line

FOLDER = "submodules"
"""In the base's objects, and in a harvest's git directory: one directory for each submodule."""
RECORD = "submodules.json"
_MOST = 1000
_SHOWN = 5
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
    """Return whether a name can be a path below `modules`."""
    return all(part not in ("", ".", "..", ".git") for part in name.split("/"))


def _gitlinks(git: Git, commit: str) -> Iterator[tuple[str, str]]:
    for entry in git.tree(commit):
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
