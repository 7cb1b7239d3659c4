"""Recover the work of a worker whose run died."""

from orchestrator.cleanup.inventory import RecordedWorker
from orchestrator.engine import labels as label
from orchestrator.engine.host_place import HostPlace
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.place import PlaceSpec
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.execution.dead_man_switch import Switch, make_switch
from orchestrator.git.packed_work import HarvestRefusedError
from orchestrator.git.repository import Repository
from orchestrator.text.redact import Redactor
from orchestrator.worker.context import run_labels
from orchestrator.worker.harvest import discard_scratch, harvest
from orchestrator.worker.harvest_request import HarvestRequest
from orchestrator.worker.pack import harvest_step
from orchestrator.worker.prepare import checkouts_of, ready_more, ready_objects, reopen
from orchestrator.workspace.shared_files import collect


def salvage(worker: RecordedWorker, repository: Repository, engine: ContainerEngine) -> None:
    """Commit files that a dead run's worker wrote, check the commits, move the branch to them.

    The worker's container must be gone. The caller must not hold the repository lock.

    Raises:
        OrchestratorError: Not all work was accepted; the written files are still in the state
            directory.
    """
    used = worker.record.engine_used
    switch = make_switch(engine, worker.directory.path, used.address if used else "")
    try:
        request = _request(worker, repository, engine, switch)
        harvested = harvest(request)
    finally:
        switch.close(forget=True)
    workspace = request.workspace
    if not workspace.is_shared:
        workspace.worktree.update(repository, base=workspace.start, tip=harvested.tip, again=True)
    collect(worker.state, request.redactor)
    if harvested.refused is not None:
        raise HarvestRefusedError(harvested.refused, key="work.refused")
    discard_scratch(request, harvested)


def _request(
    worker: RecordedWorker, repository: Repository, engine: ContainerEngine, switch: Switch
) -> HarvestRequest:
    directory, run_base = worker.directory, worker.record.base
    limits = worker.config.limits
    features = engine.check(images=(BASE_IMAGE,), runtime=None)
    history = worker.plan.config.isolation.history
    shallow = ready_objects(repository, directory, run_base, history=history)
    objects = directory.objects
    if worker.base != run_base:
        objects = ready_more(repository, directory, worker.base, since=run_base, by=worker.number)
    workspace = reopen(
        repository,
        directory,
        worker.spec,
        base=worker.base,
        objects=objects,
        checkouts=checkouts_of(repository, directory, worker.plan.config),
    )
    cpus = min(limits.cpus or 1.0, features.cpus)
    labels = run_labels(repository, directory, role="harvest")
    labels[label.WORKER] = str(worker.number)
    name = f"orchestrator-{directory.run_id}-{worker.number}"
    step = harvest_step(name, labels, workspace, limits, cpus)
    place = PlaceSpec(
        name=name,
        labels=labels,
        parts=tuple(workspace.parts([step.name])),
        steps=(step,),
    )
    return HarvestRequest(
        repository=repository,
        place=HostPlace(engine, place),
        switch=switch,
        directory=directory,
        spec=worker.spec,
        workspace=workspace,
        base=worker.base,
        shallow=shallow,
        limits=limits,
        # The values of the run's secrets were lost with its process.
        redactor=Redactor(),
        resumed=True,
    )
