"""Create a worker's files, or open those that another process created."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

from orchestrator.errors import RepositoryError
from orchestrator.files.owner import change_owner
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.object_packs import pack_since
from orchestrator.git.repository import Repository
from orchestrator.git.worktree import (
    Worktree,
    add_worktree,
    clear_place,
    ensure_worktree,
    open_worktree,
    put_aside,
)
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker_directory import Store
from orchestrator.worker.context import WorkerContext
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.caches import ready_caches
from orchestrator.workspace.confined import confined_to
from orchestrator.workspace.furnish import Extras
from orchestrator.workspace.layout import Mode
from orchestrator.workspace.mounts import Workspace
from orchestrator.workspace.owner import worker_user
from orchestrator.workspace.private_git import StoreOptions, base_objects, make_store


def ready_objects(
    repository: Repository,
    directory: RunDirectory,
    base: str,
    *,
    history: Literal["full", "shallow"],
) -> frozenset[str]:
    """Pack the base's objects, unless done; return the commits whose parents are missing.

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
    """Create an object directory for one worker's own base, unless that was done.

    Args:
        repository: The repository.
        directory: The run's directory, with the objects of the run's base.
        base: The worker's base, a descendant of the run's.
        since: The run's base.
        by: Number of the worker: several may create the same directory at the same time.

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
    """Return the complete files of a worker.

    Raises:
        OrchestratorError: They could not be created.
        OSError: The disk is full.
    """
    run, workspace = worker.run, _ready(worker)
    return replace(
        workspace,
        read_only=worker.config.isolation.read_only,
        confined_to=confined_to(worker.config),
        caches=ready_caches(run.caches, worker.directory, workspace.user, run.mode),
        shared=run.shared.mounts(worker.spec, workspace.user),
    )


def _ready(worker: WorkerContext) -> Workspace:
    repository, checkpoints = worker.run.repository, worker.checkpoints
    if checkpoints.prepared:
        return reopen(
            repository, worker.directory, worker.spec, base=worker.base, objects=worker.objects
        )
    if worker.directory.exists():
        with repository.lock():
            put_aside(repository, worker.spec, worker.directory)
    workspace = _prepare(worker)
    checkpoints.note_prepared(workspace.start)
    return workspace


def _prepare(worker: WorkerContext) -> Workspace:
    run, root = worker.run, worker.directory
    root.mkdir()
    again = bool(worker.attempts())
    # For a retry, an earlier step decided whether the branch is back at the base.
    start = run.repository.resolve(worker.branch_ref) if again else worker.base
    user = worker_user(worker.number)
    worktree = _worktree(worker, start, again=again)
    options = StoreOptions(
        base=worker.base,
        start=start,
        run_base=run.base,
        shallow=run.shallow,
        mode=run.mode,
        owner=user,
        excluded=worker.agent.ignored_files,
        extras=Extras(
            copies=run.request.copies,
            added=frozenset(filter(None, [worker.config.project.dotenv])),
            submodules=run.submodules,
            content=worker.content,
        ),
    )
    store = make_store(run.repository, worktree, root, options)
    workspace = Workspace(
        worktree=worktree,
        store=store,
        objects=worker.objects,
        mode=run.mode,
        user=user,
        start=start,
        confined_to=confined_to(worker.config),
    )
    workspace.confine()
    return workspace


def _worktree(worker: WorkerContext, start: str, *, again: bool) -> Worktree:
    """Create the worktree, or open that of an earlier attempt; the worker owns its files."""
    repository, spec = worker.run.repository, worker.spec
    owner = tree_owner(worker.run.mode, spec)
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
    worktree.check_out(repository, start, owner=owner)
    return worktree


def tree_owner(mode: Mode, spec: WorkerSpec) -> tuple[int, int] | None:
    """Return the owner that a worker's worktree has during the run; None for the caller."""
    user = worker_user(spec.worker_id)
    # The owner of a file in the lower layer is also the owner of its changed copy.
    return user if mode == "overlay" and user[0] != os.getuid() else None


def reopen(
    repository: Repository, directory: Path, spec: WorkerSpec, *, base: str, objects: Path
) -> Workspace:
    """Open the files of a worker that another process created.

    `objects` is an object directory with the objects that `base` reaches, the commit that the
    worker's first attempt starts from.

    Raises:
        RepositoryError: The path of the worktree is no longer a worktree.
    """
    store = Store(root=directory)
    mode: Mode = "bind" if store.copy.is_dir() else "overlay"
    return Workspace(
        worktree=ensure_worktree(repository, spec, owner=tree_owner(mode, spec)),
        store=store,
        objects=objects,
        mode=mode,
        user=worker_user(spec.worker_id),
        start=Checkpoints(store.root).start() or base,
    )
