"""What the workers of a run share: made before the first, gone after the last."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from orchestrator.cleanup.orphans import remove_all
from orchestrator.engine.labels import MANAGED, ROLE, RUN, WORKER
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import Emit, Notice
from orchestrator.execution.cancel import Cancel
from orchestrator.execution.dead_man_switch import LATE, Switch, make_switch
from orchestrator.execution.ports import PortBlocks
from orchestrator.execution.start_throttle import StartThrottle
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.lfs import find_content
from orchestrator.git.submodules import ready_submodules
from orchestrator.runs.recorder import Recorder
from orchestrator.runs.reservation import ClaimedRun
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.secret_files import forget
from orchestrator.worker.checked_run import CheckedRun
from orchestrator.worker.context import RunContext
from orchestrator.worker.prepare import ready_objects
from orchestrator.worker.services import HOLDER_ROLE, SERVICE_ROLE
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.caches import find_caches
from orchestrator.workspace.overlay_probe import choose_mode
from orchestrator.workspace.shared_files import INPUTS_PLACE, Shared

_TAKING_OVER = 60.0
"""Seconds for us to find the containers that another process left."""
_KEPT = frozenset({"worker", HOLDER_ROLE, SERVICE_ROLE})
"""What goes on while nobody is there."""
HOST_ROLE = "host"
"""The role of the container that closes the host to a run's network."""


@contextmanager
def release_shared(
    engine: ContainerEngine, claimed: ClaimedRun, recorder: Recorder
) -> Iterator[None]:
    """Remove what a run shares at its end, unless it is to be resumed, and release its lease."""
    try:
        yield
    finally:
        if not claimed.outcome.resumable:
            _clean_up(engine, claimed.directory, recorder)
        recorder.close()
        claimed.directory.release()


def _clean_up(engine: ContainerEngine, directory: RunDirectory, recorder: Recorder) -> None:
    for problem in _sweep(engine, directory.run_id):
        # The results stand; what is left is found by its labels.
        recorder(Notice(message=f"not all was removed ({problem})"))
    directory.drop_objects()
    remove_tree(directory.path / INPUTS_PLACE)
    forget(directory.run_id, os.environ)


def _sweep(engine: ContainerEngine, run_id: str) -> Iterator[str]:
    """Remove what a run made in the engine; say what stays, and go on."""
    try:
        leftovers = engine.leftovers({MANAGED: "true", RUN: run_id})
    except OrchestratorError as error:
        yield error.message
        return
    yield from (stuck.problem for stuck in remove_all(engine, leftovers))


def prepare_shared(
    checked: CheckedRun, claimed: ClaimedRun, emit: Emit, cancel: Cancel, *, resumed: bool
) -> RunContext:
    """Make what all workers need: the objects of the base, and a network.

    Raises:
        OrchestratorError: It could not be made.
        OSError: There is no room for it.
    """
    request, record, directory = checked.request, claimed.record, claimed.directory
    repository, config, base = request.repository, request.settings.config, record.base
    switch = _switch(checked, directory, record.workers if resumed else ())
    history = config.isolation.history
    shallow = ready_objects(repository, directory, base, history=history)
    submodules = ready_submodules(repository, base, directory.objects, history=history)
    content = find_content(repository, base, directory.path / "index")
    caches = find_caches(
        repository, base, config.project.caches, directory.path, warms=record.warms
    )
    shared = Shared(
        directory,
        repository,
        request.redactor,
        workers=record.workers,
        # Workers that are of no workflow are to know nothing of each other.
        title=None if record.workflow is None else record.workflow.name,
    )
    run = RunContext(
        checked=checked,
        directory=directory,
        base=base,
        began=record.created_at,
        objects=directory.objects,
        shallow=shallow,
        submodules=submodules.found,
        content=content,
        caches=caches,
        notices=(*submodules.notices, *content.notices, *caches.notices),
        mode=choose_mode(checked.engine, checked.features, repository, directory.path),
        network="none",
        emit=shared.following(emit),
        cancel=cancel,
        outcome=claimed.outcome,
        pace=StartThrottle(config.stagger, config.providers, just_started=resumed),
        ports=PortBlocks(directory, repository.common_dir),
        shared=shared,
        switch=switch,
        resumed=resumed,
    )
    return _with_network(run)


def _with_network(run: RunContext) -> RunContext:
    """Make the network of a run, or find the one that another process made."""
    if not any("open" in one.config.networks for _, one in run.checked.request.by_task()):
        return run
    name = f"orchestrator-{run.directory.run_id}"
    ours = run.labels(role="network")
    made = [left.id for left in run.engine.leftovers(ours) if left.kind == "network"]
    network = made[0] if made else run.engine.create_network(name, ours)
    return replace(_with_host_closed(run, name, network), network=network)


def _with_host_closed(run: RunContext, name: str, network: str) -> RunContext:
    """Close the host to the run's network, or say to people that this cannot be had here.

    Raises:
        EngineUnavailableError: The engine does not answer.
    """
    known = [one.egress for _, one in run.checked.request.by_task() if one.egress is not None]
    allowed = dict.fromkeys(place for egress in known for place in egress.allowed)
    egress = replace(known[0], allowed=tuple(allowed))
    try:
        run.engine.close_host(f"{name}-host", network, egress, run.labels(role=HOST_ROLE))
    except EngineUnavailableError:
        raise
    except OrchestratorError as error:
        notice = (
            "addresses that this machine gets during the run are not closed to its workers "
            f"({error.message})"
        )
        return replace(run, notices=(*run.notices, notice))
    return run


def _switch(checked: CheckedRun, directory: RunDirectory, running: Iterable[WorkerSpec]) -> Switch:
    """Make the switch of a run, and tell it of containers that another process started."""
    switch = make_switch(checked.engine, directory.path)
    for spec in running:
        checkpoints = Checkpoints(directory.worker(spec.worker_id))
        launched = checkpoints.launch()
        if launched is None or checkpoints.ending() is not None:
            # Told nevertheless: the switch of the other process ends when this one knows of all.
            switch.idle(spec.worker_id)
            continue
        config = checked.request.settings_of(spec.name).config
        left = None if config.timeout is None else config.timeout - (launched.age or 0.0)
        # What is late already is stopped by us, as soon as it is found.
        late = None if left is None else max(left, _TAKING_OVER) + config.limits.grace + LATE
        switch.running(spec.worker_id, late)
    return switch


def remove_helpers(engine: ContainerEngine, run_id: str) -> None:
    """Remove a dead process's helpers; workers' containers stay, and what they stand beside.

    Raises:
        EngineError: One of them could not be removed.
    """
    found = engine.leftovers({MANAGED: "true", RUN: run_id})
    containers = [left for left in found if left.kind == "container"]
    kept = {left.labels[WORKER] for left in containers if left.labels[ROLE] in _KEPT}
    for left in containers:
        role, number = left.labels[ROLE], left.labels.get(WORKER)
        if role not in _KEPT and not (role == "guard" and number in kept):
            engine.remove(left)
