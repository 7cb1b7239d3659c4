"""Start the credential broker of a run, or find the broker that another process started."""

import math
import os
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

from orchestrator.engine.egress import allowed_destinations, resolver_of
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE
from orchestrator.engine.place import Part, Place, PlaceSpec, Start, Step, StepLimits
from orchestrator.engine.protocol import Container
from orchestrator.engine.spec import BindMount, BrokerLink, ContainerSpec, Egress
from orchestrator.errors import EngineError
from orchestrator.execution.broker import (
    STATE,
    STEP,
    BrokerFiles,
    BrokerPlan,
    RunBroker,
    note_network,
    read_network,
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


def start_broker(run: RunContext, workers: tuple[WorkerSpec, ...], egress: Egress) -> RunBroker:
    """Start the broker of a run, or continue with the broker that another process started.

    Raises:
        OrchestratorError: The broker does not start.
    """
    directory, owner = run.directory, worker_user(0)
    state = directory.path / _FOLDER
    state.mkdir(mode=0o700, exist_ok=True)
    os.chown(state, *owner)
    network, subnet = _network(run, state, len(workers))
    memory = grant_directory(memory_root(os.environ), directory.run_id, owner)
    files = BrokerFiles(memory=memory, state=state, network=network, subnet=subnet, owner=owner)
    place = open_run_place(run, _place(run, files, egress))
    found = _running(run, place)
    program = ("/opt/broker/bin/python3", "-I", "-c", bundle(_PROGRAM))
    arguments = (files.address, str(BROKER_PORT), _GRANTS, _STATE)
    plan = BrokerPlan(
        place=place,
        start=Start(command=(*program, *arguments), network=run.network),
        files=files,
        workers=tuple(spec.worker_id for spec in workers),
        log=directory.path / "broker.log",
        redactor=run.redactor,
    )
    broker = RunBroker(plan, running=found)
    broker.start()
    return broker


def _network(run: RunContext, state: Path, workers: int) -> tuple[str, IPv4Network]:
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
    note_network(state, made.id, made.subnet)
    return made.id, made.subnet


def _running(run: RunContext, place: Place) -> Container | None:
    """Return the broker that another process started; remove its container if the broker ended."""
    while run.resumed and (container := place.step(STEP)) is not None:
        with suppress(EngineError):
            state = container.state()
            if state.started_at is not None and state.ended_at is None:
                return container
        container.remove()
    return None


def _place(run: RunContext, files: BrokerFiles, egress: Egress) -> PlaceSpec:
    uid, gid = files.owner
    container = ContainerSpec(
        name=f"orchestrator-{run.directory.run_id}-broker",
        image=BROKER_IMAGE,
        command=(),
        user=f"{uid}:{gid}",
        workdir="/",
        labels=run.labels(role=BROKER_ROLE),
        egress=egress,
        link=BrokerLink(network=files.network, address=files.address),
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
        collect_within=math.inf,
    )
