"""Start the credential broker of a run, or find the broker that another process started."""

import os
from ipaddress import IPv4Network
from pathlib import Path

from orchestrator.engine.egress import allowed_destinations, resolver_of
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE
from orchestrator.engine.protocol import Container
from orchestrator.engine.spec import BindMount, BrokerLink, ContainerSpec, Egress
from orchestrator.errors import OrchestratorError
from orchestrator.execution.broker import (
    BrokerPlace,
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
    place = BrokerPlace(memory=memory, state=state, network=network, subnet=subnet, owner=owner)
    found = _running(run)
    plan = BrokerPlan(
        spec=_spec(run, place, egress),
        place=place,
        workers=tuple(spec.worker_id for spec in workers),
        log=directory.path / "broker.log",
        redactor=run.redactor,
    )
    broker = RunBroker(run.engine, plan, running=found)
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


def _running(run: RunContext) -> Container | None:
    """Return the broker that another process started; remove its container if the broker ended."""
    found = run.engine.leftovers(run.labels(role=BROKER_ROLE)) if run.resumed else []
    for left in found:
        container = run.engine.adopt(left.id) if left.kind == "container" else None
        if container is None:
            continue
        try:
            state = container.state()
        except OrchestratorError:
            continue
        if state.started_at is not None and state.ended_at is None:
            return container
        container.remove()
    return None


def _spec(run: RunContext, place: BrokerPlace, egress: Egress) -> ContainerSpec:
    uid, gid = place.owner
    return ContainerSpec(
        name=f"orchestrator-{run.directory.run_id}-broker",
        image=BROKER_IMAGE,
        command=(
            *("/opt/broker/bin/python3", "-I", "-c", bundle(_PROGRAM)),
            *(place.address, str(BROKER_PORT), _GRANTS, _STATE),
        ),
        user=f"{uid}:{gid}",
        workdir="/",
        labels=run.labels(role=BROKER_ROLE),
        mounts=(
            BindMount(source=place.memory, target=_GRANTS, read_only=True),
            BindMount(source=place.state, target=_STATE, read_only=False),
        ),
        network=run.network,
        egress=egress,
        link=BrokerLink(network=place.network, address=place.address),
        memory=_MEMORY,
        pids=1024,
        open_files=16_384,
        kept_output=_KEPT_LOG,
    )
