"""Create the resources that a run's workers share, and remove them after the last worker."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from orchestrator.base.errors import EngineUnavailableError, OrchestratorError
from orchestrator.base.events import Emit, Notice
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.threads import meanwhile
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.interface.labels import (
    HOST_ROLE,
    MANAGED,
    NETWORK_ROLE,
    PLACE,
    ROLE,
    RUN,
    WORKER,
)
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import Egress
from orchestrator.repository.checkouts.lfs import find_content
from orchestrator.repository.checkouts.submodules import ready_submodules
from orchestrator.repository.objects.object_packs import pack_commit
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import is_partial
from orchestrator.runs.live.broker_container import (
    BROKER_ROLE,
    broker_egress,
    needs_broker,
    start_broker,
)
from orchestrator.runs.live.recorder import ClaimedRun, Recorder
from orchestrator.sandbox.deadlines.dead_man_switch import LATE, Switch, make_switch
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.sandbox.network.ports import PortBlocks
from orchestrator.sandbox.network.run_network import RunNetwork, close_host
from orchestrator.sandbox.supervision.cancel import Cancel
from orchestrator.sandbox.supervision.pacing.start_throttle import StartThrottle
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.secret_files import forget, memory_root
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.worker.checked_run import CheckedRun
from orchestrator.worker.context import RunContext, run_labels
from orchestrator.worker.prepare import checkouts_of, ready_objects
from orchestrator.worker.steps.place import CA_FILE
from orchestrator.worker.steps.services import HOLDER_ROLE, SERVICE_ROLE
from orchestrator.worker.workspace.caches import Caches, find_caches
from orchestrator.worker.workspace.layout import Mode
from orchestrator.worker.workspace.overlay_probe import check_memory
from orchestrator.worker.workspace.shared_checkout import KEPT_UNUSED, prune_checkouts
from orchestrator.worker.workspace.shared_files import INPUTS_PLACE, Shared

_TAKING_OVER = 60.0
"""Maximum number of seconds in which a resumed run finds the earlier process's containers, before
the dead man's switch kills them.
"""
_EMPTY = "caches start empty: the engine cannot use those of this machine"
_KEPT = frozenset({"worker", HOLDER_ROLE, SERVICE_ROLE, BROKER_ROLE})
"""Roles of containers that continue to run while no process carries out the run."""
_OF_THE_RUN = frozenset({HOST_ROLE, NETWORK_ROLE})
"""Roles of the run's network and of its helper."""
_OF_NETWORKS = frozenset({"guard", "gateway"})
"""Roles of containers that provide the network of another container of the same worker."""


@contextmanager
def release_shared(
    engine: ContainerEngine, claimed: ClaimedRun, recorder: Recorder
) -> Iterator[None]:
    """Remove what workers share when the `with` block ends, unless the run must be resumed.

    In either case the run's lease (its lock) is released.
    """
    try:
        yield
    finally:
        if not claimed.outcome.resumable:
            ended = claimed.directory
            for problem in _sweep(engine, ended.run_id):
                # The results are kept; later, cleanup finds the leftovers by their labels.
                left = f"some containers or networks of the run could not be removed ({problem})"
                recorder(Notice(message=left))
            ended.drop_objects()
            remove_tree(ended.path / INPUTS_PLACE)
            with suppress(OrchestratorError, OSError):
                prune_checkouts(Repository(claimed.record.top), keep=KEPT_UNUSED)
            forget(ended.run_id, os.environ)
        recorder.close()
        claimed.directory.release()


def _sweep(engine: ContainerEngine, run_id: str) -> Iterator[str]:
    """Remove a run's containers and networks from the engine; yield the errors."""
    try:
        leftovers = engine.leftovers({MANAGED: "true", RUN: run_id})
    except OrchestratorError as error:
        yield error.message
        return
    yield from (stuck.problem for stuck in remove_all(engine, leftovers))


def prepare_shared(
    checked: CheckedRun, claimed: ClaimedRun, emit: Emit, cancel: Cancel, *, resumed: bool
) -> RunContext:
    """Create what all workers need, such as the network and a copy of the base's git objects.

    The run's network may not be closed to this machine yet: see `network_closed`.

    Raises:
        OrchestratorError: The resources could not be created.
        OSError: The disk is full.
    """
    if not any(task.egress for _, task in checked.request.by_task()):
        return _prepare(checked, claimed, emit, cancel, resumed=resumed)
    directory, brokers = claimed.directory, needs_broker(checked.request)
    pool = ThreadPoolExecutor(2, thread_name_prefix="network")
    try:
        # The rules for this machine name the network's bridge before it exists.
        made = pool.submit(_network, checked, directory, resumed=resumed)
        # protection: host-blocked-for-runs-network
        closed = None if brokers else pool.submit(_close_host, checked, directory)
        run = _prepare(checked, claimed, emit, cancel, resumed=resumed)
        if closed is None:
            return _with_broker(run, made.result(), claimed.record.workers)
        if resumed:
            # Containers of the earlier process may only be started by the helper of this one.
            wait([closed])
        network = RunNetwork(
            made.result(),
            closed,
            workers=[spec.worker_id for spec in claimed.record.workers],
            remove=partial(_remove_network, checked.engine, directory.run_id),
        )
        return replace(run, shared_network=network)
    except BaseException:
        pool.shutdown()
        raise
    finally:
        pool.shutdown(wait=False)


def _prepare(
    checked: CheckedRun, claimed: ClaimedRun, emit: Emit, cancel: Cancel, *, resumed: bool
) -> RunContext:
    request, record, directory = checked.request, claimed.record, claimed.directory
    repository, config, base = request.repository, request.settings.config, record.base
    history = config.isolation.history
    # The first run in a large repository packs for seconds.
    with meanwhile(partial(ready_objects, repository, directory, base, history=history)) as packing:
        mode = _mode(checked, directory)
        switch = _switch(checked, directory, record.workers if resumed else ())
        checkouts = checkouts_of(repository, directory, config)
        if checkouts is not None:
            checkouts.take(base, "")
        content = find_content(repository, base, directory.path / "index")
        caches = _caches(checked, base, directory, warms=record.warms)
    shallow = packing.result()
    notices = []
    known = history == "shallow" or is_partial(repository.git_config)
    if shallow == {base} and not known and base not in repository.shallow_commits():
        notices = [
            "objects of the history are missing or damaged: workers get the base commit without "
            "history; `git fsck --connectivity-only` names the objects"
        ]
    submodules = ready_submodules(
        repository, base, directory.objects, partial(pack_commit, history=history)
    )
    shared = Shared(
        directory,
        repository,
        request.redactor,
        workers=record.workers,
        # Without a workflow, workers must not know of each other.
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
        notices=(
            *notices,
            *submodules.notices,
            *content.notices,
            *caches.notices,
        ),
        mode=mode,
        emit=shared.following(emit),
        cancel=cancel,
        outcome=claimed.outcome,
        pace=StartThrottle(config.stagger, config.providers, just_started=resumed),
        ports=PortBlocks(directory, repository.common_dir),
        shared=shared,
        checkouts=checkouts,
        switch=switch,
        resumed=resumed,
    )
    ca_file = directory.path / CA_FILE
    authorities = None if ca_file.exists() else request.settings.company.bundle()
    if authorities is None:
        return run
    write_private(ca_file, authorities.pem, mode=0o644)
    return replace(run, notices=(*run.notices, *authorities.notices))


def _caches(checked: CheckedRun, base: str, directory: RunDirectory, *, warms: bool) -> Caches:
    """Return the caches of the run; none are stored for an engine that gets files as streams."""
    request, kinds = checked.request, checked.request.settings.config.project.caches
    if checked.features.transfer == "streams" and kinds:
        return Caches(kinds=kinds, notices=(_EMPTY,))
    return find_caches(request.repository, base, kinds, directory.path, warms=warms)


def _mode(checked: CheckedRun, directory: RunDirectory) -> Mode:
    """Return the mode of the workers' files, after a test whether containers see secrets."""
    request, engine, features = checked.request, checked.engine, checked.features
    if features.transfer == "streams":
        # Each worker's own checkout is sent to the engine.
        return "bind"
    if request.secrets.root is not None or needs_broker(request):
        root = request.secrets.root or memory_root(os.environ)
        check_memory(engine, features, request.repository, directory.path, root)
    return "overlay" if features.overlay else "bind"


def _network(checked: CheckedRun, directory: RunDirectory, *, resumed: bool) -> str:
    """Return the id of the network of the run's workers, which is created if it is missing."""
    ours = run_labels(checked.request.repository, directory, role=NETWORK_ROLE)
    found = checked.engine.leftovers(ours) if resumed else []
    made = [left.id for left in found if left.kind == "network"]
    return made[0] if made else checked.engine.create_network(_network_name(directory), ours)


def _network_name(directory: RunDirectory) -> str:
    return f"orchestrator-{directory.run_id}"


def _remove_network(engine: ContainerEngine, run_id: str) -> None:
    """Remove the run's network and its helper; what is left is removed at the end of the run."""
    with suppress(OrchestratorError):
        found = engine.leftovers({MANAGED: "true", RUN: run_id})
        # protection: early-removal-of-network-spares-workers-containers
        remove_all(engine, (left for left in found if left.labels.get(ROLE) in _OF_THE_RUN))


def _close_host(checked: CheckedRun, directory: RunDirectory, *more: Egress) -> str | None:
    """Block access from the run's network to this machine; return a notice on failure.

    The network need not exist yet.

    Raises:
        EngineUnavailableError: The engine does not answer.
    """
    known = [egress for _, task in checked.request.by_task() for egress in task.egress.values()]
    labels = run_labels(checked.request.repository, directory, role=HOST_ROLE)
    try:
        close_host(checked.engine, _network_name(directory), [*known, *more], labels)
    except EngineUnavailableError:
        raise
    except OrchestratorError as error:
        return (
            f"workers can reach addresses that this machine gets during the run ({error.message})"
        )
    return None


def _with_broker(run: RunContext, network: str, workers: tuple[WorkerSpec, ...]) -> RunContext:
    """Return `run` with its network, which is closed, and the broker that its workers need."""
    egress = None if run.features.addresses else broker_egress(run, workers)
    closed, notice = Future[str | None](), None
    if egress is not None:
        notice = _close_host(run.checked, run.directory, egress)
    closed.set_result(None)
    run = replace(
        run,
        shared_network=RunNetwork(network, closed),
        notices=(*run.notices, *([notice] if notice else ())),
    )
    return replace(run, broker=start_broker(run, workers, egress))


@contextmanager
def network_closed(run: RunContext) -> Iterator[None]:
    """Report if the run's network cannot be closed to this machine; wait for this at the end.

    Containers with network access are created once the network is closed, or this has failed.
    """
    network = run.shared_network
    if network is None:
        yield
        return

    def report(closed: "Future[str | None]") -> None:
        notice = None if closed.exception() else closed.result()
        if notice is not None:
            run.emit(Notice(message=notice))

    network.closed.add_done_callback(report)
    try:
        yield
    finally:
        network.wait()


def _switch(checked: CheckedRun, directory: RunDirectory, running: Iterable[WorkerSpec]) -> Switch:
    """Return the switch, a process that kills overdue containers, and tell it of existing ones."""
    switch = make_switch(checked.engine, directory.path, checked.features.address)
    for spec in running:
        checkpoints = Checkpoints(directory.worker(spec.worker_id))
        launched = checkpoints.launch()
        if launched is None or checkpoints.ending() is not None:
            # The switch of the process that died ends only when no worker is left.
            switch.idle(spec.worker_id)
            continue
        config = checked.request.settings_of(spec.name).config
        left = None if config.timeout is None else config.timeout - (launched.age or 0.0)
        # If the deadline has passed, this process stops the container as soon as it is found.
        late = None if left is None else max(left, _TAKING_OVER) + config.limits.grace + LATE
        switch.running(spec.worker_id, late)
    return switch


def remove_helpers(engine: ContainerEngine, run_id: str) -> None:
    """Remove helper containers of a dead process, unless workers or services still need them.

    Raises:
        EngineError: A container could not be removed.
    """
    found = engine.leftovers({MANAGED: "true", RUN: run_id})
    containers = [left for left in found if left.kind == "container"]
    # The broker and its guard belong to no worker.
    kept = {left.labels.get(WORKER) for left in containers if left.labels[ROLE] in _KEPT}
    for left in containers:
        role, number = left.labels[ROLE], left.labels.get(WORKER)
        # A place with volumes carries on without this process; it also removes its helpers.
        if PLACE in left.labels and role not in _OF_NETWORKS:
            continue
        if role not in _KEPT and not (role in _OF_NETWORKS and number in kept):
            engine.remove(left)
