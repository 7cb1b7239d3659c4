"""Recover the work of a worker whose run died."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.base.errors import EngineError, UnsupportedError
from orchestrator.base.text.redact import Redactor
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface import labels as label
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import Place, PlaceEngine, PlaceSpec, Step
from orchestrator.repository.incoming.packed_work import HarvestRefusedError
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker
from orchestrator.sandbox.deadlines.dead_man_switch import Switch, make_switch
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.worker.context import run_labels
from orchestrator.worker.harvest.harvest import discard_scratch, harvest, take_refused
from orchestrator.worker.prepare import checkouts_of, ready_more, ready_objects, reopen
from orchestrator.worker.steps.harvest_request import HarvestRequest
from orchestrator.worker.steps.pack import DEATH, harvest_step
from orchestrator.worker.steps.place import left_behind, take_handed
from orchestrator.worker.workspace.layout import AGENT_STEP
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.shared_files import collect, handed_mount


def salvage(
    worker: RecordedWorker, repository: Repository, engine: ContainerEngine
) -> tuple[str, ...]:
    """Commit files that a dead run's worker wrote, check the commits, move the branch to them.

    The worker's containers must be gone, except for a pod, whose steps are ended here. The caller
    must not hold the repository lock.

    Returns:
        Notes about files that could not be kept.

    Raises:
        OrchestratorError: Not all work was accepted; the written files are still in the state
            directory, or in the worker's place.
        OSError: The disk is full.
    """
    used = worker.record.engine_used
    switch = make_switch(engine, worker.directory.path, used.address if used else "")
    try:
        request = _request(worker, repository, engine, switch)
        workspace, place = request.workspace, request.place
        notes = take_handed(workspace, place, limit=request.limits.disk)
        harvested = harvest(request)
        if harvested.refused is not None:
            take_refused(request)
    finally:
        switch.close(forget=True)
    if not workspace.is_shared:
        workspace.worktree.update(repository, base=workspace.start, tip=harvested.tip, again=True)
    handed = collect(worker.state, request.redactor)
    if harvested.refused is not None:
        raise HarvestRefusedError(harvested.refused, key="work.refused")
    ours = worker.config.project.dotenv
    notes = (*notes, *handed.notes, *left_behind(repository, place, harvested.tip, ours=ours))
    discard_scratch(request, harvested)
    place.release()
    return notes


def _request(
    worker: RecordedWorker, repository: Repository, engine: ContainerEngine, switch: Switch
) -> HarvestRequest:
    directory, run_base = worker.directory, worker.record.base
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
    handed = handed_mount(workspace.store.root, workspace.user)
    workspace = replace(workspace, shared=(handed,))
    labels = {**run_labels(repository, directory, role="worker"), label.WORKER: str(worker.number)}
    return HarvestRequest(
        repository=repository,
        place=_open_place(worker, engine, workspace, labels),
        switch=switch,
        directory=directory,
        spec=worker.spec,
        workspace=workspace,
        base=worker.base,
        shallow=shallow,
        limits=worker.config.limits,
        # The values of the run's secrets were lost with its process.
        redactor=Redactor(),
        resumed=True,
    )


def _open_place(
    worker: RecordedWorker,
    engine: ContainerEngine,
    workspace: Workspace,
    labels: Mapping[str, str],
) -> Place:
    """Open the worker's place, in which only the harvest may still run.

    Raises:
        EngineError: The place and the work in it are gone.
    """
    limits, project = worker.config.limits, worker.config.project
    features = engine.check(images=(BASE_IMAGE,), runtime=None)
    cpus = min(limits.cpus or 1.0, features.cpus)
    name = label.place_name(worker.directory.run_id, worker.number)
    last = harvest_step(name, {**labels, label.ROLE: "harvest"}, workspace, limits, cpus)
    stages = {"setup": project.setup, AGENT_STEP: True, "teardown": project.teardown}
    earlier = [
        Step(name=stage, spec=replace(last.spec, name=f"{name}-{stage}"))
        for stage, exists in stages.items()
        if exists
    ]
    # The place itself may have begun or done the harvest after the task.
    steps = (*earlier, replace(last, after=earlier[-1].name))
    parts = tuple(workspace.parts([AGENT_STEP, last.name]))
    attempts = len(worker.directory.attempts(worker.number))
    place_name = label.place_name(worker.directory.run_id, worker.number, earlier=attempts)
    spec = PlaceSpec(name=place_name, labels=labels, parts=parts, steps=steps)
    used, checkpoints = worker.record.engine_used, Checkpoints(worker.state)
    known = checkpoints.harvest()
    is_sent = used is not None and used.transfer == "streams"
    # Accepted work is not needed in a place any more.
    if not is_sent or (known is not None and known.refused is None):
        return HostPlace(engine, spec)
    # protection: work-of-lost-place-is-not-replaced
    if checkpoints.launch() is not None and not engine.leftovers(
        {**labels, label.PLACE: spec.name}
    ):
        raise EngineError(
            "the worker's place is gone from the engine, with the work in it",
            key="place.gone",
            hint=f"`{worker.purge_command}` removes the worker and its backups",
        )
    if not isinstance(engine, PlaceEngine):
        raise UnsupportedError(
            f"the engine `{engine.name}` has no places for files", key="transfer.unsupported"
        )
    place = engine.open_place(spec)
    place.put(parts)
    for step in earlier:
        container = place.step(step.name)
        if container is not None:
            container.kill("SIGKILL")
            container.wait(DEATH)
    return place
