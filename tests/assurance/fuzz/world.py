"""Repositories for the fuzz tests: the objects that a worker was given, and private ones."""

import os
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.incoming.quarantine import HandedOver, Origin
from orchestrator.repository.repository import Repository
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.private_git import StoreOptions, base_objects, make_store
from tests.assurance.fuzz.objects import Entry
from tests.support.repository import git

BRANCH = "architect/parallel-1"
SECRET = "a secret that no worker was given\n"


@dataclass(frozen=True, kw_only=True)
class World:
    """A repository with a branch for a worker, and the directories around it."""

    root: Path
    base: str
    algorithm: str
    origin: Origin
    before: str | None
    """The parent of the base, if the worker has it."""
    private: tuple[str, ...]
    """Objects of the repository that the worker was not given: commit, tree, blob, tag."""
    entries: tuple[Entry, ...]
    """Entries of the tree of the base."""
    sizes: tuple[tuple[str, int], ...]
    """Files of the base and their sizes."""

    @cached_property
    def repository(self) -> Repository:
        """The user's repository."""
        return Repository(self.root / "repo")

    @property
    def store(self) -> Store:
        """The worker's git directory."""
        return Store(root=self.root / "state")

    @property
    def handed_over(self) -> HandedOver:
        """The worker's harvest, as the import takes it."""
        return HandedOver(
            repository=self.repository,
            out=self.store.out,
            quarantine=self.store.quarantine,
            origin=self.origin,
        )

    @property
    def mark(self) -> Path:
        """A file that appears when forbidden code runs."""
        return self.root / "MARK"

    @property
    def trap(self) -> Path:
        """A directory of the host that hostile links point to."""
        return self.root / "trap"

    def copy(self, root: Path) -> "World":
        """Copy the world for one case."""
        shutil.copytree(self.root, root, symlinks=True)
        return replace(self, root=root, origin=replace(self.origin, objects=root / "objects"))


def make_world(root: Path, *, history: str, algorithm: str, submodule: bool) -> World:
    """Create a world with a history of two commits, and a private branch with a tag."""
    repo = root / "repo"
    repo.mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main", "--template=", f"--object-format={algorithm}")
    git(repo, "config", "user.name", "user")
    git(repo, "config", "user.email", "user@example.org")
    (repo / "a.txt").write_text("a\n")
    _commit(repo, "first")
    before = git(repo, "rev-parse", "HEAD")
    (repo / "src").mkdir()
    (repo / "src" / "app.py").write_text("print('hello')\n" * 40)
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o755)
    (repo / "link").symlink_to("a.txt")
    (repo / ".gitattributes").write_text("*.bin binary\n")
    if submodule:
        git(repo, "update-index", "--add", "--cacheinfo", f"160000,{before},vendored")
    _commit(repo, "second", add=not submodule)
    base = git(repo, "rev-parse", "HEAD")
    private = _private(repo)
    git(repo, "branch", BRANCH, base)
    _hooks(repo / ".git" / "hooks", root / "MARK")
    (root / "trap").mkdir()
    (root / "trap" / "secret").write_text("CANARY\n")
    shallow = base_objects(Repository(repo), base, root / "objects", history=history)  # type: ignore[arg-type]
    return World(
        root=root,
        base=base,
        algorithm=algorithm,
        origin=Origin(base=base, objects=root / "objects", shallow=shallow),
        before=before if history == "full" else None,
        private=private if history == "full" else (*private, before),
        entries=tuple(_entries(repo, base)),
        sizes=tuple(_sizes(repo, base)),
    )


def add_store(world: World) -> None:
    """Add the files that a worker's container is given in the mode `bind`."""
    world.store.root.mkdir()
    options = StoreOptions(
        base=world.base,
        start=world.base,
        run_base=world.base,
        shallow=world.origin.shallow,
        mode="bind",
        owner=(os.getuid(), os.getgid()),
        excluded=(),
    )
    worktree = Worktree(path=world.root, branch=BRANCH, git_dir=world.root)
    make_store(world.repository, worktree, world.store.root, options)


def _commit(repo: Path, message: str, *, add: bool = True) -> None:
    git(repo, "add", "-A") if add else git(repo, "add", "src", "run.sh", "link", ".gitattributes")
    git(repo, "commit", "-qm", message)


def _private(repo: Path) -> tuple[str, ...]:
    git(repo, "checkout", "-qb", "private")
    (repo / "secret.txt").write_text(SECRET)
    git(repo, "add", "secret.txt")
    git(repo, "commit", "-qm", "private")
    git(repo, "tag", "-am", "private", "v1")
    names = ("HEAD", "HEAD^{tree}", "HEAD:secret.txt", "v1")
    found = tuple(git(repo, "rev-parse", name) for name in names)
    git(repo, "checkout", "-q", "main")
    return found


def _hooks(directory: Path, mark: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-update", "pre-auto-gc", "post-index-change"):
        (directory / name).write_text(f"#!/bin/sh\ntouch '{mark}'\n")
        (directory / name).chmod(0o755)


def _entries(repo: Path, base: str) -> list[Entry]:
    rows = git(repo, "ls-tree", base).splitlines()
    found = []
    for row in rows:
        head, _, name = row.partition("\t")
        mode, _, object_id = head.split(" ")
        found.append((mode.lstrip("0").encode(), name.encode(), object_id))
    return found


def _sizes(repo: Path, base: str) -> list[tuple[str, int]]:
    rows = (row.split() for row in git(repo, "ls-tree", "-r", "-l", base).splitlines())
    return [(row[2], int(row[3])) for row in rows if row[1] == "blob"]
