"""Create a worker's files on the host, or open files that another process created."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

from orchestrator.base.errors import RepositoryError
from orchestrator.base.files.change_owner import change_owner
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.labels import PLACE
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.worktree import (
    add_worktree,
    check_out,
    clear_place,
    ensure_worktree,
    open_worktree,
    put_aside,
    put_worktree_aside,
)
from orchestrator.repository.objects.object_packs import pack_since
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.workspace.caches import ready_caches
from orchestrator.worker.workspace.confined import confined_to
from orchestrator.worker.workspace.furnish import Extras
from orchestrator.worker.workspace.layout import Mode
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.private_git import StoreOptions, base_objects, make_store
from orchestrator.worker.workspace.shared_checkout import Checkouts
from orchestrator.worker.workspace.worker_user import process_user, tree_owner


def ready_objects(
    repository: Repository,
    directory: RunDirectory,
    base: str,
    *,
    history: Literal["full", "shallow"],
) -> frozenset[str]:
    """Pack the base commit's objects unless packed; return commits whose parents are left out.

    Raises:
        OrchestratorError: The objects could not be packed.
        OSError: The disk is full.
    """
    known = directory.shallow()
    if known is None or not directory.objects.is_dir():
        # A process that died may have left an incomplete directory.
        remove_tree(directory.objects)
        known = base_objects(repository, base, directory.objects, history=history)
        directory.write_shallow(known)
    return known


def ready_more(
    repository: Repository, directory: RunDirectory, base: str, *, since: str, by: int
) -> Path:
    """Create the object directory for a worker's own base commit, unless that was done.

    Args:
        repository: The repository.
        directory: The run's directory, with the objects of the run's base.
        base: The worker's base, a descendant of the run's.
        since: The run's base.
        by: Number of the worker, because several workers may create the directory at the same time.

    Raises:
        OrchestratorError: The objects could not be packed.
        OSError: The disk is full.
    """
    place = directory.objects_of(base)
    if place.is_dir():
        return place
    half = place.with_name(f"{place.name}.{by}")
    remove_tree(half)
    half.parent.mkdir(exist_ok=True)
    shutil.copytree(directory.objects, half, copy_function=os.link)
    pack_since(repository.git, base, since, half)
    try:
        half.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        remove_tree(half)
    return place


def ready_workspace(worker: WorkerContext) -> Workspace:
    """Create those of a worker's files that are missing, and return all of its files.

    Raises:
        OrchestratorError: The files could not be created.
        OSError: The disk is full.
    """
    run, workspace = worker.run, _ready(worker)
    # protection: confinement-is-passed-to-mounts
    return replace(
        workspace,
        read_only=worker.config.isolation.read_only,
        confined_to=confined_to(worker.config),
        caches=ready_caches(run.caches, worker.directory, workspace.user, run.mode),
        shared=run.shared.mounts(worker.spec, workspace.user),
    )


def _ready(worker: WorkerContext) -> Workspace:
    repository, checkpoints = worker.run.repository, worker.checkpoints
    if checkpoints.is_prepared:
        return reopen(
            repository, worker.run.directory, worker.spec, base=worker.base, objects=worker.objects,
            checkouts=worker.run.checkouts,
        )  # fmt: skip
    _remove_places(worker)
    if worker.directory.exists():
        with repository.lock():
            put_aside(repository, worker.spec, worker.directory)
    workspace = _prepare(worker)
    checkpoints.note_prepared(workspace.start)
    return workspace


def _remove_places(worker: WorkerContext) -> None:
    """Remove the places of earlier attempts of a worker, which have recorded their results.

    Raises:
        EngineError: The engine does not answer, or refused.
    """
    engine = worker.run.engine
    if not worker.run.streams or not (worker.run.resumed or worker.attempts()):
        return
    labels = {name: text for name, text in worker.labels(role="").items() if text}
    found = [left for left in engine.leftovers(labels) if PLACE in left.labels]
    for kind in ("container", "volume", "network"):
        for left in found:
            if left.kind == kind:
                engine.remove(left)


def _prepare(worker: WorkerContext) -> Workspace:
    run, root = worker.run, worker.directory
    root.mkdir()
    again = bool(worker.attempts())
    # For a retry, an earlier step decided whether the branch is back at the base.
    start = run.repository.resolve(worker.spec.ref) if again else worker.base
    extras = Extras(
        copies=run.request.copies,
        added=frozenset(filter(None, [worker.config.project.dotenv])),
        submodules=run.submodules,
        content=worker.content,
        shown=run.checkouts is None,
    )
    mode = run.mode
    if run.checkouts is None:
        worktree = _worktree(worker, start, again=again)
    else:
        worktree = run.checkouts.take(start, worker.spec.branch)
        # Nothing may be added to a shared checkout, so the worker gets its own.
        # protection: no-file-is-added-to-shared-checkout
        if not extras.are_none or confined_to(worker.config):
            mode = "bind"
    user = process_user(worker.number, mode, shared=run.checkouts is not None)
    options = StoreOptions(
        base=worker.base,
        start=start,
        run_base=run.base,
        shallow=run.shallow,
        mode=mode,
        is_shared=run.checkouts is not None,
        owner=user,
        excluded=worker.agent.ignored_files,
        extras=extras,
    )
    store = make_store(run.repository, worktree, root, options)
    workspace = Workspace(
        worktree=worktree,
        is_shared=run.checkouts is not None,
        store=store,
        objects=worker.objects,
        mode=mode,
        user=user,
        start=start,
        confined_to=confined_to(worker.config),
    )
    # protection: mount-points-are-created-without-following-links
    workspace.confine()
    return workspace


def _worktree(worker: WorkerContext, start: str, *, again: bool) -> Worktree:
    """Create the worktree or open that of an earlier attempt; its files belong to the worker."""
    repository, spec = worker.run.repository, worker.spec
    owner = tree_owner(spec.worker_id, worker.run.mode)
    with repository.lock():
        if again:
            try:
                path = repository.top / spec.directory
                worktree = open_worktree(path, spec.branch, marked=spec.is_named)
            except RepositoryError:
                clear_place(repository, spec, worker.directory)
            else:
                if owner is not None:
                    change_owner(worktree.path, owner, keep=worktree.path)
                return worktree
        worktree = add_worktree(repository, spec)
    # The lock is released before, so that several worktrees are written at the same time.
    with worker.run.checkout_slots:
        check_out(repository, worktree, start, owner=owner)
    return worktree


def ensure_tree(worker: WorkerContext, workspace: Workspace) -> Worktree:
    """Return a worker's worktree or shared checkout; create it again if the user deleted it.

    Raises:
        RepositoryError: The path of the worktree is no longer a worktree.
    """
    checkouts = worker.run.checkouts
    return _tree(worker.run.repository, worker.spec, workspace.mode, workspace.start, checkouts)


def _tree(
    repository: Repository,
    spec: WorkerSpec,
    mode: Mode,
    start: str,
    checkouts: Checkouts | None,
) -> Worktree:
    if checkouts is not None:
        return checkouts.take(start, spec.branch)
    return ensure_worktree(repository, spec, owner=tree_owner(spec.worker_id, mode))


def reopen(
    repository: Repository,
    directory: RunDirectory,
    spec: WorkerSpec,
    *,
    base: str,
    objects: Path,
    checkouts: Checkouts | None,
) -> Workspace:
    """Open the files that another process created for a worker.

    `base` is the commit that the worker's first attempt starts from, and `objects` an object
    directory with the objects that `base` reaches; `checkouts` are the shared checkouts of a run
    without worktrees.

    Raises:
        RepositoryError: The path of the worktree is no longer a worktree.
    """
    store = Store(root=directory.worker(spec.worker_id))
    mode: Mode = "bind" if store.copy.is_dir() else "overlay"
    start = Checkpoints(store.root).start() or base
    return Workspace(
        worktree=_tree(repository, spec, mode, start, checkouts),
        is_shared=checkouts is not None,
        store=store,
        objects=objects,
        mode=mode,
        user=process_user(spec.worker_id, mode, shared=checkouts is not None),
        start=start,
    )


def checkouts_of(
    repository: Repository, directory: RunDirectory, config: ParallelConfig
) -> Checkouts | None:
    """Return the workers' shared checkouts; None if each worker has a worktree from the start."""
    return None if config.worktrees == "start" else Checkouts(repository, directory)


def show_worktree(worker: WorkerContext) -> None:
    """Create or update the worktree of a worker that has ended, if worktrees appear at the end.

    Raises:
        OrchestratorError: The worktree could not be created; the work is on the branch.
        OSError: The disk is full.
    """
    run, checkpoints = worker.run, worker.checkpoints
    if run.config.worktrees != "end" or not checkpoints.is_prepared or checkpoints.is_shown:
        return
    repository, spec = run.repository, worker.spec
    path = repository.top / spec.directory
    places = [Checkpoints(place) for _, place in worker.attempts()]
    shown = [number for number, place in enumerate(places, start=1) if place.is_shown]
    # The worktree is where the attempt began that followed: several turns may have ended since.
    start = [*places, checkpoints][shown[-1]].start() if shown else None
    if start is not None and os.path.lexists(path):
        worktree = open_worktree(path, spec.branch, marked=spec.is_named)
        tip = repository.resolve(spec.ref)
        worktree.update(repository, base=start, tip=tip, again=run.resumed)
        checkpoints.note_shown()
        return
    with repository.lock():
        if run.resumed or shown:
            # A process that died may have written a part of it.
            put_worktree_aside(repository, spec, worker.directory)
        worktree = add_worktree(repository, spec)
    check_out(repository, worktree, worker.spec.ref)
    checkpoints.note_shown()
