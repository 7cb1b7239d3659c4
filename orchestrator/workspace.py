"""What one worker works in: its worktree, its store, and how a container sees them.

Two modes, the same to everything else. `overlay`: the worktree is the lower layer of an overlay
that the daemon mounts, and what the worker writes lands in our state directory. `bind`, where an
overlay cannot be had: the worker has a checkout of its own there. In neither can a worker write to
the worktree that the user sees.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal

from orchestrator.config import BASE_IMAGE
from orchestrator.engine.base import (
    MANAGED,
    REPOSITORY,
    ROLE,
    RUN,
    BindMount,
    ContainerEngine,
    ContainerSpec,
    EngineFeatures,
    OverlayMount,
    TmpfsMount,
)
from orchestrator.errors import EngineError, OrchestratorError, UnsupportedError
from orchestrator.lfs import tell_index_again
from orchestrator.repository import Repository
from orchestrator.store import OBJECTS, STORE, WORKSPACE, Store, change_owner
from orchestrator.worktree import Worktree

HOME = "/home/worker"
HARVEST = "/harvest"
OUT = "/out"
PROBE = "probe"
CACHES = "caches"
"""Layers of a worker's own on top of what is cached, in its state directory."""
CHECKED = "checked"
"""What a worker committed, checked out anew, in its state directory."""
WRITTEN = "/written"
_OWN_USERS = 20_000
"""Added to the worker's number: users that no ordinary system has."""
_PROBE_TIMEOUT = 60.0
_NEAR = 4
"""Directories inside each other that are emptied where they are: to move one is two more writes."""

Mode = Literal["overlay", "bind"]
Mounts = tuple[BindMount | OverlayMount | TmpfsMount, ...]


def worker_user(worker_id: int) -> tuple[int, int]:
    """Give uid and gid for a worker: the caller's, or for root one of the worker's own."""
    if os.getuid() == 0:
        return _OWN_USERS + worker_id, _OWN_USERS + worker_id
    return os.getuid(), os.getgid()


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """One worker's files on the host."""

    worktree: Worktree
    store: Store
    objects: Path
    mode: Mode
    user: tuple[int, int]
    start: str
    """The commit that its branch points at until there is a harvest."""
    read_only: bool = False
    """Whether the agent can write neither to the tree nor to the store."""
    caches: Mounts = ()
    """What it finds cached, which is no part of its work."""
    shared: Mounts = ()
    """What it finds of others, and hands over to them, beside its work."""

    @property
    def user_text(self) -> str:
        """`uid:gid`."""
        return f"{self.user[0]}:{self.user[1]}"

    def mounts(self) -> Mounts:
        """Give what the worker's container sees."""
        return (
            self._tree(),
            BindMount(source=self.store.pointer, target=f"{WORKSPACE}/.git", read_only=True),
            BindMount(source=self.store.git, target=STORE, read_only=self.read_only),
            BindMount(source=self.objects, target=OBJECTS, read_only=True),
        )

    def harvest_mounts(self) -> Mounts:
        """Give what the harvest's container sees."""
        return (
            *replace(self, read_only=False).mounts(),
            BindMount(source=self.store.harvest, target=HARVEST, read_only=False),
            BindMount(source=self.store.out, target=OUT, read_only=False),
            *self._written(),
        )

    def _written(self) -> Mounts:
        if self.mode == "bind":
            return ()
        return (BindMount(source=self.store.upper, target=WRITTEN, read_only=True),)

    @property
    def written(self) -> str:
        """Where the harvest's container finds what the worker wrote, and little else."""
        return WORKSPACE if self.mode == "bind" else WRITTEN

    def _tree(self) -> BindMount | OverlayMount:
        if self.mode == "bind":
            return BindMount(source=self.store.copy, target=WORKSPACE, read_only=self.read_only)
        return OverlayMount(
            lower=self.worktree.path,
            upper=self.store.upper,
            work=self.store.overlay,
            target=WORKSPACE,
            read_only=self.read_only,
        )

    def writable(self) -> tuple[Path, ...]:
        """Give the directories that grow as the worker writes."""
        tree = self.store.copy if self.mode == "bind" else self.store.upper
        return tree, self.store.git, *_growing(self.caches), *_growing(self.shared)

    def is_untouched(self) -> bool:
        """Tell whether the agent wrote nothing at all; False where that is not certain."""
        if self.read_only:
            return True
        if self.mode == "bind":
            return False
        try:
            if any(self.store.upper.iterdir()):
                return False
            return _holds_no_objects(self.store.git / "objects")
        except OSError:
            return False

    def clear_harvest(self) -> None:
        """Remove what would mislead after a harvest that was cut short; its container is gone."""
        (self.store.harvest / "index.lock").unlink(missing_ok=True)
        for name in ("tip", "kept", "kept.pack"):
            (self.store.out / name).unlink(missing_ok=True)

    def is_packed(self) -> bool:
        """Tell whether the harvest's container came to its end; the tip is the last it writes."""
        return os.path.lexists(self.store.out / "tip")

    def hand_over(self) -> None:
        """Give the worktree's files to the worker's user again, for another harvest."""
        if self.mode == "overlay" and self.user[0] != os.getuid():
            change_owner(self.worktree.path, self.user, keep=self.worktree.path)

    def take_back(self, repository: Repository, *, again: bool = False) -> None:
        """Make the user's worktree the caller's again; no worker could ever write to it.

        Args:
            repository: The repository.
            again: A process that died may have begun with it.
        """
        if self.mode == "overlay" and self.user[0] != os.getuid():
            owner = (os.getuid(), os.getgid())
            change_owner(self.worktree.path, owner, keep=self.worktree.path)
        # Where the user's own git has the lock, whoever changes files next is told so.
        with suppress(OrchestratorError):
            self.worktree.refresh(repository, again=again)
            tell_index_again(repository, self.store.root, self.worktree.git_dir, self.worktree.path)

    def discard_scratch(self) -> None:
        """Remove what a finished harvest needs no more; what the worker wrote stays aside."""
        for path in (self.store.git, self.store.harvest, self.store.out, self.store.overlay):
            remove_tree(path)
        remove_tree(self.store.root / CACHES)


def _growing(mounts: Mounts) -> Iterator[Path]:
    for mount in mounts:
        if isinstance(mount, OverlayMount):
            yield mount.upper
        elif isinstance(mount, BindMount) and not mount.read_only:
            yield mount.source


def _holds_no_objects(objects: Path) -> bool:
    """Tell whether an object directory is as it was made, without walking into anything else."""
    folders = (objects, objects / "info", objects / "pack")
    if not all(stat.S_ISDIR(folder.lstat().st_mode) for folder in folders):
        return False
    return [_names(folder) for folder in folders] == [{"info", "pack"}, {"alternates"}, set()]


def remove_tree(path: Path) -> None:
    """Remove a directory that a worker may have made hard to remove; follows no link.

    Directories far inside others move up before they are emptied, so that no depth is too much.
    What cannot be removed is left: the next clean-up meets it again.
    """
    if path.is_symlink():
        path.unlink()
        return
    spare = (path / f"{secrets.token_hex(8)}-{number}" for number in count())
    stuck: set[str] = set()
    _unlock(path)
    while names := _names(path) - stuck:
        stuck |= {name for name in names if not _removed(path / name, spare)}
    _remove_empty(path)


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))  # noqa: PTH208  # names alone
    except OSError:
        return set()


def _removed(entry: Path, spare: Iterator[Path], near: int = _NEAR) -> bool:
    try:
        if not stat.S_ISDIR(entry.lstat().st_mode):
            entry.unlink()
        # An overlay's scratch belongs to root and cannot be read, but it is empty.
        elif not _remove_empty(entry):
            _unlock(entry)
            _empty(entry, spare, near)
            entry.rmdir()
    except OSError:
        return False
    return True


def _empty(directory: Path, spare: Iterator[Path], near: int) -> None:
    with os.scandir(directory) as children:
        for child in children:
            path = Path(child.path)
            if not child.is_dir(follow_symlinks=False):
                path.unlink()
            elif near:
                _removed(path, spare, near - 1)
            elif not _remove_empty(path):
                _unlock(path)  # a directory that moves must be writable itself
                path.rename(next(spare))


def _unlock(directory: Path) -> None:
    with suppress(OSError):
        # A mode that is set is written to the disk, also where it is what it was.
        if directory.lstat().st_mode & stat.S_IRWXU != stat.S_IRWXU:
            directory.chmod(0o700)


def _remove_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return False
    return True


def choose_mode(
    engine: ContainerEngine, features: EngineFeatures, repository: Repository, run: Path
) -> Mode:
    """Find out once per engine and repository whether overlays work here, and remember it.

    Args:
        engine: The engine.
        features: What it told of itself.
        repository: The repository.
        run: The directory of the run that wants to know; its name is the run's id.

    Raises:
        UnsupportedError: Containers see no file of this machine.
    """
    if not may_overlay(features, repository):
        return "bind"
    known = repository.state_dir / "overlay"
    if known.exists() and known.read_text() == features.version:
        return "overlay"
    if not probe(engine, repository, run, overlay=True):
        if not probe(engine, repository, run, overlay=False):
            raise UnsupportedError(
                "the engine does not see the files of this machine, or its containers cannot "
                "write to them",
                hint="use Docker on this machine, started by root; `orchestrator doctor` tries it",
            )
        return "bind"
    known.write_text(features.version)
    return "overlay"


def may_overlay(features: EngineFeatures, repository: Repository) -> bool:
    """Tell whether an overlay is worth a try: its options cannot hold every path."""
    return features.overlay and not set(",:\\") & set(f"{repository.common_dir}{repository.top}")


def probe(
    engine: ContainerEngine,
    repository: Repository,
    run: Path,
    *,
    overlay: bool,
    runtime: str | None = None,
) -> bool:
    """Start a container that writes a file through a mount, and look for the file.

    Args:
        engine: The engine.
        repository: The repository.
        run: A directory for the probe; its name is the id of a run, for the container's label.
        overlay: Try an overlay; otherwise a bind mount.
        runtime: The OCI runtime to start the container with. Default: the engine's own.
    """
    root = run / PROBE
    # What a process left that died meanwhile.
    remove_tree(root)
    layers = {name: root / name for name in ("lower", "upper", "work")}
    for path in layers.values():
        path.mkdir(parents=True)
    uid, gid = worker_user(0)
    for path in layers.values():
        os.chown(path, uid, gid)
    upper = layers["upper"]
    mount = (
        OverlayMount(lower=layers["lower"], upper=upper, work=layers["work"], target=WORKSPACE)
        if overlay
        else BindMount(source=upper, target=WORKSPACE, read_only=False)
    )
    spec = ContainerSpec(
        name=f"orchestrator-{run.name}-probe",
        image=BASE_IMAGE,
        command=("sh", "-c", "echo yes > probe"),
        user=f"{uid}:{gid}",
        workdir=WORKSPACE,
        labels={
            MANAGED: "true",
            RUN: run.name,
            ROLE: "probe",
            REPOSITORY: str(repository.common_dir),
        },
        mounts=(mount,),
        runtime=runtime,
    )
    try:
        container = engine.start(spec)
        try:
            container.wait(_PROBE_TIMEOUT)
        finally:
            container.remove()
        return (upper / "probe").exists()
    except (EngineError, TimeoutError):
        return False
    finally:
        remove_tree(root)
