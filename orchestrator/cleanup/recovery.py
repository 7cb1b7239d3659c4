"""Bring home the work of a worker whose orchestrator died before it could."""

from dataclasses import replace

from orchestrator.agents import load_agent
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.events import ignore
from orchestrator.execution.cancel import Cancel
from orchestrator.execution.dead_man_switch import make_switch
from orchestrator.execution.ports import PortBlocks
from orchestrator.execution.start_throttle import StartThrottle
from orchestrator.git.quarantine import HarvestRefusedError
from orchestrator.git.repository import Repository
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord
from orchestrator.state.secret_files import read_secrets
from orchestrator.state.worker_directory import Store
from orchestrator.text.redact import Redactor
from orchestrator.worker.checked_run import CheckedRequest, CheckedRun, CheckedSettings
from orchestrator.worker.context import RunContext
from orchestrator.worker.harvest import discard_scratch, harvest
from orchestrator.worker.prepare import ready_more, ready_objects, reopen
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.planning import config_of
from orchestrator.workspace.shared_files import Shared


def is_stranded(directory: RunDirectory, spec: WorkerSpec) -> bool:
    """Return whether a worker of a dead run may have written what is on no branch yet."""
    store = Store(root=directory.worker(spec.worker_id))
    if _never_ran(directory, spec, store):
        return False
    wrote = store.upper.is_dir() or store.copy.is_dir()
    # What was let in may not be in the worktree yet, whatever is left of the scratch.
    begun = store.git.is_dir() or Checkpoints(store.root).harvested() is not None
    return wrote and begun and directory.result(spec.worker_id) is None


def _never_ran(directory: RunDirectory, spec: WorkerSpec, store: Store) -> bool:
    """Return whether no container that could write to a worker's files was ever started."""
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
    settings = CheckedSettings(
        config=record.config,
        agent=load_agent(record.config.agent_cli),
        image=BASE_IMAGE,
        egress=None,
        inherited_env={},
    )
    request = CheckedRequest(
        settings=settings,
        repository=repository,
        secrets=read_secrets((), {}),
        redactor=Redactor(),
    )
    return RunContext(
        checked=CheckedRun(request=request, engine=engine, features=features),
        settings=settings,
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
        pace=StartThrottle(0),
        switch=make_switch(engine, directory.path),
        resumed=True,
    )
