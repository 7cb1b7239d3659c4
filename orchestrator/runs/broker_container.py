"""Start the credential broker of a run, or find the broker that another process started."""

import math
import os
from contextlib import suppress
from pathlib import Path

from orchestrator.engine.egress import allowed_destinations, resolver_of
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE
from orchestrator.engine.place import Part, Place, PlaceSpec, Start, Step, StepLimits
from orchestrator.engine.protocol import Container
from orchestrator.engine.spec import BindMount, BrokerLink, ContainerSpec, Egress
from orchestrator.errors import EngineError, PlaceLostError
from orchestrator.execution.broker import (
    STATE,
    STEP,
    BrokerFiles,
    BrokerPlan,
    RunBroker,
    address_of,
    grant_files,
)
from orchestrator.execution.broker_address import (
    BrokerNetwork,
    NotedPlace,
    note_network,
    note_place,
    read_network,
    read_place,
)
from orchestrator.files.bundle import bundle
from orchestrator.gateway.allowed_host import BROKER_PORT
from orchestrator.state.secret_files import grant_directory, memory_root
from orchestrator.worker.checked_run import CheckedRequest
from orchestrator.worker.context import RunContext
from orchestrator.worker.place import open_run_place
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.worker_user import worker_user

BROKER_ROLE = "broker"
"""Role, in the containers' labels, of the broker and of the container that owns its network."""
_NETWORK_ROLE = "broker-network"
_FOLDER = "broker"
_GRANTS = "/run/broker"
_STATE = "/var/lib/broker"
_PROGRAM = "orchestrator.broker.server"
_MEMORY = 1024 * 1024**2
_KEPT_LOG = 1024**2
_SPARE = 3600.0
"""Seconds for which the broker waits for its client, after the last worker must have ended."""
_UNLIMITED = 24 * 3600.0
"""What counts as the time of a worker that has no limit of time."""


def needs_broker(request: CheckedRequest) -> bool:
    """Return whether any worker of a run gets its API keys through a broker."""
    return any(settings.config.isolation.keys == "broker" for _, settings in request.by_task())


def broker_egress(run: RunContext, workers: tuple[WorkerSpec, ...]) -> Egress:
    """Return the broker's destinations: the internet, and configured URLs in private networks."""
    urls: list[str] = []
    for spec in workers:
        keys = run.request.settings_of(spec.name).keys(spec.model)
        if keys is not None:
            urls += [upstream.url for upstream in keys.upstreams.values()]
            urls += [repository.url for repository in keys.repositories]
    resolve = resolver_of(run.engine)
    allowed = allowed_destinations((), dict.fromkeys(urls), resolve)
    return Egress(image=BASE_IMAGE, allowed=allowed)


def start_broker(
    run: RunContext, workers: tuple[WorkerSpec, ...], egress: Egress | None
) -> RunBroker:
    """Start the broker of a run, or continue with the broker that another process started.

    Args:
        run: The run.
        workers: Its workers.
        egress: The broker's destinations; None: its place has an address and a network.

    Raises:
        OrchestratorError: The broker does not start.
    """
    directory, owner = run.directory, worker_user(0)
    state = directory.path / _FOLDER
    state.mkdir(mode=0o700, exist_ok=True)
    os.chown(state, *owner)
    network = None if egress is None else _network(run, state, len(workers))
    memory = grant_directory(memory_root(os.environ), directory.run_id, owner)
    files = BrokerFiles(memory=memory, state=state, owner=owner)
    cut_off: frozenset[int] = frozenset()

    def reopen() -> Place:
        return _open_next(run, files, read_place(directory.path).number + 1)

    if network is not None:
        place = open_run_place(run, _place(run, files, egress, network))
    else:
        noted = read_place(directory.path)
        try:
            place = _open_next(run, files, noted.number)
        except PlaceLostError:
            place = reopen()
        if noted.address not in ("", address_of(place)):
            cut_off = frozenset(grant_files(memory))
    found = _running(run, place)
    program = ("/opt/broker/bin/python3", "-I", "-c", bundle(_PROGRAM))
    plan = BrokerPlan(
        place=place,
        network=network,
        reopen=reopen if network is None else None,
        cut_off=cut_off,
        start=Start(
            command=(*program, str(BROKER_PORT), _GRANTS, _STATE),
            network="none" if network is None else run.network,
        ),
        files=files,
        workers=tuple(spec.worker_id for spec in workers),
        log=directory.path / "broker.log",
        redactor=run.redactor,
    )
    broker = RunBroker(plan, running=found)
    broker.start()
    return broker


def _open_next(run: RunContext, files: BrokerFiles, number: int) -> Place:
    """Open a place with an address of its own, and record it."""
    place = open_run_place(run, _place(run, files, None, None, number=number))
    note_place(run.directory.path, NotedPlace(number=number, address=address_of(place)))
    return place


def _network(run: RunContext, state: Path, workers: int) -> BrokerNetwork:
    labels = run.labels(role=_NETWORK_ROLE)
    existing = [left for left in run.engine.leftovers(labels) if left.kind == "network"]
    known = read_network(state, {left.id for left in existing}) if run.resumed else None
    if known is not None:
        return known
    for left in existing:
        # The process that created the network died before it recorded it.
        run.engine.remove(left)
    name = f"orchestrator-{run.directory.run_id}-broker"
    made = run.engine.create_private_network(name, labels, addresses=workers + 1)
    network = BrokerNetwork(id=made.id, subnet=made.subnet)
    note_network(state, network)
    return network


def _running(run: RunContext, place: Place) -> Container | None:
    """Return the broker that another process started; remove its container if the broker ended."""
    while run.resumed and (container := place.step(STEP)) is not None:
        with suppress(EngineError):
            state = container.state()
            if state.started_at is not None and state.ended_at is None:
                return container
        container.remove()
    return None


def _place(
    run: RunContext,
    files: BrokerFiles,
    egress: Egress | None,
    network: BrokerNetwork | None,
    *,
    number: int = 1,
) -> PlaceSpec:
    uid, gid = files.owner
    link = BrokerLink()
    if network is not None:
        link = BrokerLink(network=network.id, address=network.address)
    container = ContainerSpec(
        name=f"orchestrator-{run.directory.run_id}-broker{f'-{number}' if number > 1 else ''}",
        image=BROKER_IMAGE,
        command=(),
        user=f"{uid}:{gid}",
        workdir="/",
        labels=run.labels(role=BROKER_ROLE),
        egress=egress,
        link=link,
        memory=_MEMORY,
        pids=1024,
        open_files=16_384,
        kept_output=_KEPT_LOG,
    )
    seen_by = frozenset({STEP})
    grants = BindMount(source=files.memory, target=_GRANTS, read_only=True)
    state = BindMount(source=files.state, target=_STATE, read_only=False)
    return PlaceSpec(
        name=container.name,
        labels=container.labels,
        parts=(
            Part(name="grants", mount=grants, seen_by=seen_by, in_memory=True),
            Part(name=STATE, mount=state, seen_by=seen_by),
        ),
        steps=(Step(name=STEP, spec=container, limits=StepLimits(output=_KEPT_LOG, serves=True)),),
        # Where it ends by itself, workers go on without their client until they must have ended.
        collect_within=_longest(run) + _SPARE if network is None else math.inf,
    )


def _longest(run: RunContext) -> float:
    """Return for how many seconds a worker may go on."""
    every = [settings.config for _, settings in run.request.by_task()]
    times = [
        (config.timeout or _UNLIMITED)
        + config.limits.grace
        + 2 * (config.project.setup_timeout or _UNLIMITED)
        for config in every
    ]
    return max(times)
