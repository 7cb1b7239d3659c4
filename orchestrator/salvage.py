"""Bring home the work of a worker whose orchestrator died before it could."""

from dataclasses import replace

from orchestrator.agents import load_agent
from orchestrator.checkpoints import Checkpoints
from orchestrator.config import BASE_IMAGE
from orchestrator.context import RunContext
from orchestrator.deadman import make_switch
from orchestrator.engine.base import ContainerEngine
from orchestrator.events import ignore
from orchestrator.execution import Cancel
from orchestrator.harvest import HarvestRefusedError
from orchestrator.homecoming import discard_scratch, harvest
from orchestrator.pace import Pace
from orchestrator.plan import WorkerSpec
from orchestrator.ports import PortBlocks
from orchestrator.preparation import ready_more, ready_objects, reopen
from orchestrator.record import RunDirectory, RunRecord
from orchestrator.redact import Redactor
from orchestrator.repository import Repository
from orchestrator.secret_files import read_secrets
from orchestrator.sharing import Shared
from orchestrator.store import Store
from orchestrator.workflow.model import config_of


def is_stranded(directory: RunDirectory, spec: WorkerSpec) -> bool:
    """Tell whether a worker of a dead run may have written what is on no branch yet."""
    store = Store(root=directory.worker(spec.worker_id))
    if _never_ran(directory, spec, store):
        return False
    wrote = store.upper.is_dir() or store.copy.is_dir()
    # What was let in may not be in the worktree yet, whatever is left of the scratch.
    begun = store.git.is_dir() or Checkpoints(store.root).harvested() is not None
    return wrote and begun and directory.result(spec.worker_id) is None


def _never_ran(directory: RunDirectory, spec: WorkerSpec, store: Store) -> bool:
    """Tell whether no container that could write to a worker's files was ever started."""
    record = directory.record()
    if record is None or Checkpoints(store.root).launch() is not None:
        return False
    config = record.config
    if record.workflow is not None and spec.name is not None:
        config = config_of(config, record.workflow[spec.name], record.programs)
    # A container of setup starts without a note before it.
    return not config.project.setup and not directory.attempts(spec.worker_id)


def salvage(
    repository: Repository,
    engine: ContainerEngine,
    directory: RunDirectory,
    record: RunRecord,
    spec: WorkerSpec,
) -> None:
    """Harvest a stranded worker: commit what it wrote, check it, put it on its branch.

    Its container must be gone. To be called without the repository's lock.

    Raises:
        OrchestratorError: Not all was let in; its files are still where it wrote them.
    """
    store = Store(root=directory.worker(spec.worker_id))
    base = directory.base_of(spec.worker_id) or record.base
    run = _context(repository, engine, directory, record)
    if base != record.base:
        objects = ready_more(repository, directory, base, since=record.base, by=spec.worker_id)
        run = replace(run, base=base, objects=objects)
    workspace = reopen(repository, directory, spec, base=base, objects=run.objects)
    try:
        harvested = harvest(run, spec, workspace, Checkpoints(store.root))
    finally:
        run.switch.close(forget=True)
    workspace.worktree.update(repository, base=workspace.start, tip=harvested.tip, again=True)
    run.shared.collect(spec)
    if harvested.refused is not None:
        raise HarvestRefusedError(harvested.refused)
    discard_scratch(run, spec, workspace)


def _context(
    repository: Repository,
    engine: ContainerEngine,
    directory: RunDirectory,
    record: RunRecord,
) -> RunContext:
    features = engine.check(images=(BASE_IMAGE,), runtime=None)
    history = record.config.isolation.history
    return RunContext(
        config=record.config,
        repository=repository,
        engine=engine,
        features=features,
        agent=load_agent(record.config.agent_cli),
        image=BASE_IMAGE,
        cpus=min(record.config.limits.cpus or 1.0, features.cpus),
        egress=None,
        inherited_env={},
        secrets=read_secrets((), {}),
        redactor=Redactor(),
        directory=directory,
        base=record.base,
        run_base=record.base,
        began=record.created_at,
        objects=directory.objects,
        shallow=ready_objects(repository, directory, record.base, history=history),
        mode="overlay",
        network="none",
        ports=PortBlocks(directory, repository.common_dir),
        shared=Shared(directory, repository, Redactor(), workers=()),
        emit=ignore,
        cancel=Cancel(),
        pace=Pace(0),
        switch=make_switch(engine, directory.path),
        resumed=True,
    )
