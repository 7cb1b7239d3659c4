"""A worker's files: made for it, or found where another process made them."""

from orchestrator.checkpoints import Checkpoints
from orchestrator.context import RunContext
from orchestrator.plan import WorkerSpec
from orchestrator.record import RunDirectory
from orchestrator.repository import Repository
from orchestrator.store import Store, StoreOptions, make_store
from orchestrator.workspace import Workspace, worker_user
from orchestrator.worktree import add_worktree, ensure_worktree, put_aside


def ready_workspace(run: RunContext, spec: WorkerSpec, checkpoints: Checkpoints) -> Workspace:
    """Give a worker its files, complete.

    Raises:
        OrchestratorError: They could not be made.
        OSError: There is no room for them.
    """
    if checkpoints.prepared:
        return reopen(run.repository, run.directory, spec)
    root = run.directory.worker(spec.worker_id)
    if root.exists():
        with run.repository.lock():
            put_aside(run.repository, spec, root)
    workspace = _prepare(run, spec)
    checkpoints.note_prepared()
    return workspace


def _prepare(run: RunContext, spec: WorkerSpec) -> Workspace:
    root = run.directory.worker(spec.worker_id)
    root.mkdir()
    with run.repository.lock():
        worktree = add_worktree(run.repository, spec)
    user = worker_user(spec.worker_id)
    options = StoreOptions(
        base=run.base, shallow=run.shallow, mode=run.mode, owner=user, excluded=run.agent.droppings
    )
    store = make_store(run.repository, worktree, root, options)
    return Workspace(
        worktree=worktree, store=store, objects=run.directory.objects, mode=run.mode, user=user
    )


def reopen(repository: Repository, directory: RunDirectory, spec: WorkerSpec) -> Workspace:
    """Find what another process made.

    Raises:
        RepositoryError: The worktree is none any more.
    """
    store = Store(root=directory.worker(spec.worker_id))
    return Workspace(
        worktree=ensure_worktree(repository, spec),
        store=store,
        objects=directory.objects,
        mode="bind" if store.copy.is_dir() else "overlay",
        user=worker_user(spec.worker_id),
    )
