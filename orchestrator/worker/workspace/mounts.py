"""The files of one worker, and how the steps of its place see them.

In the mode `overlay`, the worktree is the read-only lower layer of an overlay file system, and the
worker writes to an upper layer in its state directory. The mode `bind` is for machines without
overlays: the worker gets a checkout of its own in its state directory. In neither mode can a worker
write to the worktree that the user sees.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.files.change_owner import change_owner
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.engine.interface.spec import BindMount, OverlayMount
from orchestrator.engine.places.place import GIT, TREE, Part
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.lfs import tell_index_again
from orchestrator.repository.commits.changes import blobs
from orchestrator.repository.repository import Repository
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.confined import (
    VIEW,
    Scratch,
    all_scratch,
    make_directory,
    make_scratch,
    scratch,
)
from orchestrator.worker.workspace.layout import (
    AGENT_STEP,
    CACHES,
    HARVEST,
    HARVEST_STEP,
    OBJECTS,
    OUT,
    PACKED,
    PACKING,
    SESSION_PART,
    STORE,
    SWEPT,
    WORKSPACE,
    WRITTEN,
    Mode,
    Mount,
    Mounts,
    part_of,
)
from orchestrator.worker.workspace.store_state import holds_no_new_objects
from orchestrator.worker.workspace.written_files import MOST_FILES, remove_committed


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """The files of one worker on the host."""

    worktree: Worktree
    """The worktree that the user sees, or the shared checkout that is used in its place."""
    is_shared: bool = False
    """Whether `worktree` is a shared checkout, which nothing may change."""
    store: Store
    objects: Path
    mode: Mode
    user: tuple[int, int]
    start: str
    """The commit that the worker's branch points at until the worker's commits are accepted."""
    read_only: bool = False
    """Whether the agent can write neither to the worktree nor to the git directory."""
    confined_to: tuple[str, ...] = ()
    """Directories below the top to which the worker can write. Empty: all directories."""
    caches: Mounts = ()
    """Mounts of the shared caches, which are not part of the worker's work."""
    shared: Mounts = ()
    """Mounts of files that workers share, which are not part of the worker's commits."""
    session: BindMount | None = None
    """Mount of the directory in which the agent program keeps its session; None: none is kept."""

    @property
    def user_text(self) -> str:
        """Return the worker's user and group as `uid:gid`."""
        return f"{self.user[0]}:{self.user[1]}"

    def parts(self, steps: Iterable[str]) -> Iterator[Part]:
        """Yield the files that the steps of a place see, with their mounts on this machine.

        The harvest sees the whole tree, writable, and neither caches nor shared files.
        """
        every = frozenset(steps)
        harvest = every & {HARVEST_STEP}
        tasks = every - harvest
        # `read_only` is a setting of the agent alone.
        sealed = tasks & {AGENT_STEP} if self.read_only else frozenset()
        writing = replace(self, read_only=False)
        whole = replace(writing, confined_to=())
        kinds = ((self, sealed), (writing, tasks - sealed), (whole, harvest))
        views = [(view, seen_by) for view, seen_by in kinds if seen_by]
        for view, seen_by in views:
            for name, mount in view._tree():
                yield Part(name=name, mount=mount, seen_by=seen_by)
        # protection: git-pointer-read-only
        pointer = BindMount(source=self.store.pointer, target=f"{WORKSPACE}/.git", read_only=True)
        yield Part(name="pointer", mount=pointer, seen_by=every)
        for view, seen_by in views:
            # protection: read-only-store
            git = BindMount(source=self.store.git, target=STORE, read_only=view.read_only)
            yield Part(name=GIT, mount=git, seen_by=seen_by)
        # protection: bases-objects-read-only
        objects = BindMount(source=self.objects, target=OBJECTS, read_only=True)
        # These files never change, so all workers of a run can have the same copy.
        yield Part(name="objects", mount=objects, seen_by=every, digest=str(self.objects))
        for mount in self.caches if tasks else ():
            yield Part(name=part_of(mount.target), mount=mount, seen_by=tasks)
        for mount in self.shared if tasks else ():
            # What workers only read are texts about their tasks.
            in_memory = mount.read_only
            yield Part(name=part_of(mount.target), mount=mount, seen_by=tasks, in_memory=in_memory)
        if self.session is not None and AGENT_STEP in tasks:
            # protection: session-is-seen-by-agent-alone
            yield Part(name=SESSION_PART, mount=self.session, seen_by=frozenset({AGENT_STEP}))
        for name, mount in self._packing() if harvest else ():
            yield Part(name=name, mount=mount, seen_by=harvest)

    def _tree(self) -> Iterator[tuple[str, Mount]]:
        """Yield the names and mounts of the tree, and of its directories that are writable."""
        store, tree = self.store, self.worktree.path
        confined = () if self.read_only else self.confined_to
        sealed = self.read_only or bool(confined)
        if self.mode == "bind":
            # protection: read-only-checkout
            # protection: worktree-read-only-outside-paths-bind
            yield TREE, BindMount(source=store.copy, target=WORKSPACE, read_only=sealed)
            for path in confined:
                place, target = store.copy / path, f"{WORKSPACE}/{path}"
                yield f"{TREE}/{path}", BindMount(source=place, target=target, read_only=False)
            return
        # The mounts of the directories use parts of the upper layer, so the view has its own.
        view = scratch(store, VIEW) if confined else Scratch(store.upper, store.overlay)
        # protection: read-only-worktree
        # protection: worktree-read-only-outside-paths-overlay
        whole = OverlayMount(
            lower=tree, upper=view.upper, work=view.work, target=WORKSPACE, read_only=sealed
        )
        yield TREE, whole
        for number, path in enumerate(confined):
            # protection: partial-overlays-record-no-paths-of-whole-tree
            layer = OverlayMount(
                lower=tree / path,
                upper=store.upper / path,
                work=scratch(store, str(number)).work,
                target=f"{WORKSPACE}/{path}",
                redirects=False,
            )
            yield f"{TREE}/{path}", layer

    def _packing(self) -> Iterator[tuple[str, Mount]]:
        """Yield the names and mounts of the files that only the harvest sees."""
        store = self.store
        yield PACKING, BindMount(source=store.harvest, target=HARVEST, read_only=False)
        yield PACKED, BindMount(source=store.out, target=OUT, read_only=False)
        if self.mode == "overlay":
            yield "written", BindMount(source=store.upper, target=WRITTEN, read_only=True)
        # A worker with `enforce: ro` has more overlays. After a deletion, a file that belongs to
        # root stays in an overlay's work directory until the next mount, and an ordinary user could
        # not remove the directory.
        # protection: overlay-work-directories-of-root-are-emptied
        for number, place in enumerate(all_scratch(store)):
            swept = OverlayMount(
                lower=self.worktree.path,
                upper=place.upper,
                work=place.work,
                target=f"{SWEPT}/{number}",
                read_only=True,
            )
            yield f"swept-{number}", swept

    @property
    def growing(self) -> tuple[str, ...]:
        """Return the names of the parts whose growth counts toward the worker's limit on disk."""
        # protection: artifacts-count-against-disk-limit
        # protection: cache-layers-count-against-disk-limit
        mounts = (mount for mount in (*self.caches, *self.shared) if not mount.read_only)
        # protection: session-counts-against-disk-limit
        session = () if self.session is None else (SESSION_PART,)
        return TREE, GIT, *session, *(part_of(mount.target) for mount in mounts)

    @property
    def tree(self) -> Path:
        """Return the directory on the host to which files go that the worker writes in its tree."""
        return self.store.copy if self.mode == "bind" else self.store.upper

    @property
    def written(self) -> str:
        """Return the path of the worker's written files in the container that packs them."""
        return WORKSPACE if self.mode == "bind" else WRITTEN

    def is_untouched(self) -> bool:
        """Return whether it is certain that the agent wrote nothing at all."""
        if self.read_only:
            return True
        if self.mode == "bind":
            return False
        try:
            # Directories that a confined worker can write to were created in the upper layer
            # beforehand.
            places = [self.store.upper / path for path in self.confined_to or (".",)]
            if any(any(place.iterdir()) for place in places):
                return False
            return holds_no_new_objects(self.store)
        except OSError:
            return False

    def clear_harvest(self) -> None:
        """Remove the files of an interrupted packing, whose container is gone."""
        (self.store.harvest / "index.lock").unlink(missing_ok=True)
        for name in ("tip", "pack", "kept", "kept.pack"):
            (self.store.out / name).unlink(missing_ok=True)

    def complete_harvest(self) -> None:
        """Copy a shared checkout's index to the git directory for packing, unless it is there.

        Raises:
            OSError: The disk is full.
        """
        index = self.store.harvest / "index"
        if os.path.lexists(index):
            return
        half = index.with_name("index.half")
        # A process that died may have left a part, and only a new file is certainly no link.
        half.unlink(missing_ok=True)
        with (self.worktree.git_dir / "index").open("rb") as source, half.open("xb") as copy:
            shutil.copyfileobj(source, copy)
            if self.user[0] != os.getuid():
                os.fchown(copy.fileno(), *self.user)
        half.rename(index)

    def is_packed(self) -> bool:
        """Return whether packing was completed; the file `tip` is written last."""
        return os.path.lexists(self.store.out / "tip")

    def hand_over(self) -> None:
        """Make the worker's user the owner of the worktree again, to pack its files once more."""
        if self.mode == "overlay" and self.user[0] != os.getuid() and not self.is_shared:
            change_owner(self.worktree.path, self.user, keep=self.worktree.path)

    def reclaim_worktree(self, repository: Repository, *, again: bool = False) -> None:
        """Make the caller the owner of the worktree again, now that no worker uses the worktree.

        Args:
            repository: The repository.
            again: Whether a process that died may have begun to change the owner.
        """
        # protection: owner-of-shared-checkout-is-not-changed
        if self.is_shared:
            return
        if again:
            self.worktree.unlock()
        if self.mode == "bind" or self.user[0] == os.getuid():
            return
        change_owner(self.worktree.path, (os.getuid(), os.getgid()), keep=self.worktree.path)
        # If a git command of the user holds the lock, the next change of files reports it.
        with suppress(OrchestratorError):
            self.worktree.accept_owner(repository)
            tell_index_again(repository, self.store.root, self.worktree.git_dir, self.worktree.path)

    def confine(self) -> None:
        """Create the directories on which the mounts of a worker with `enforce: ro` are placed.

        A directory of `confined_to` that the tree does not have is created empty.

        Raises:
            OrchestratorError: A file or link of the tree has the path of a directory.
            OSError: The disk is full.
        """
        overlay = self.mode == "overlay"
        trees = (self.worktree.path, self.store.upper) if overlay else (self.store.copy,)
        for path in self.confined_to:
            for tree in trees:
                make_directory(tree, path, self.user)
        if overlay and self.confined_to:
            make_scratch(self.store, len(self.confined_to), self.user)

    def forget_written(self) -> None:
        """Remove the files that the worker wrote to its overlay; its branch has them.

        The directory stays, because a cleanup recognises by it that the worker ran.
        """
        with suppress(OSError):
            for path in list(self.store.upper.iterdir()):
                if path.is_dir():
                    remove_tree(path)
                else:
                    path.unlink()

    def forget_committed(self, repository: Repository, tip: str) -> None:
        """Remove those of the worker's written files that are also in the commit `tip`."""
        base = None if self.mode == "bind" else self.start
        with suppress(OrchestratorError), closing(blobs(repository, base=base, tip=tip)) as found:
            remove_committed(self.tree, dict(islice(found, MOST_FILES)))

    def discard_scratch(self) -> None:
        """Remove temporary files after the commits were accepted; keep written files."""
        store = self.store
        for path in (store.git, store.harvest, store.out, store.overlay, store.plain):
            remove_tree(path)
        # protection: cache-layers-are-removed-after-run
        remove_tree(self.store.root / CACHES)
