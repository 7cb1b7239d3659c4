"""Start the credential broker of a run, or find the broker that another process started."""

import math
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from orchestrator.base.errors import ConfigError, EngineError, PlaceLostError
from orchestrator.base.files.bundle import bundle
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.values import parse_prices
from orchestrator.config.workflow.planning import plan_workers
from orchestrator.engine.egress import allowed_destinations, resolver_of
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE
from orchestrator.engine.interface.labels import for_a_moment
from orchestrator.engine.interface.protocol import Container, ContainerEngine
from orchestrator.engine.interface.spec import BindMount, BrokerLink, ContainerSpec, Egress
from orchestrator.engine.places.place import (
    ClusterEngine,
    Part,
    Place,
    PlaceSpec,
    Start,
    Step,
    StepLimits,
)
from orchestrator.network.gateway.allowed_host import BROKER_PORT
from orchestrator.sandbox.sidecars.broker import (
    STATE,
    STEP,
    BrokerFiles,
    BrokerPlan,
    RunBroker,
    address_of,
    grant_files,
)
from orchestrator.sandbox.sidecars.broker_address import (
    BrokerNetwork,
    NotedPlace,
    note_network,
    note_place,
    read_network,
    read_place,
)
from orchestrator.state.secret_files import grant_directory, memory_root
from orchestrator.worker.checked_run import CheckedRequest, CheckedSettings
from orchestrator.worker.context import RunContext
from orchestrator.worker.steps.place import open_run_place
from orchestrator.worker.workspace.worker_user import worker_user

BROKER_ROLE = "broker"
"""Role, in the containers' labels, of the broker and of the container that owns its network."""
_NETWORK_ROLE = "broker-network"
_FOLDER = "broker"
_GRANTS = "/run/broker"
_STATE = "/var/lib/broker"
_PROGRAM = "orchestrator.network.broker.server"
_PRICES = "orchestrator.network.broker.prices"
_PYTHON = "/opt/broker/bin/python3"
_LIST = 60.0
"""Maximum number of seconds until the broker's image has told prices."""
_FULL_NAME = re.compile(r"(?=.*-)(?=.*[0-9]).*")
_MEMORY = 1024 * 1024**2
_KEPT_LOG = 1024**2
_SPARE = 3600.0
"""Seconds for which the broker waits for its client, after the last worker must have ended."""
_UNLIMITED = 24 * 3600.0
"""What counts as the time of a worker that has no limit of time."""


def needs_broker(request: CheckedRequest) -> bool:
    """Return whether any worker of a run gets its API keys through a broker."""
    return any(settings.config.isolation.keys == "broker" for _, settings in request.by_task())


def check_prices(
    engine: ContainerEngine, repository: str, every: Iterable[CheckedSettings]
) -> None:
    """Check that the models of workers with a budget and a broker have a price.

    The price list is in the broker's image. A name without a digit or a hyphen is left to the call:
    the agent program may know it as a short name for another one. So is every name if the engine
    starts no container of its own.

    Args:
        engine: The engine, which has the broker's image.
        repository: The repository's git common directory, for the labels.
        every: The settings of each worker.

    Raises:
        ConfigError: A model has no price.
        EngineError: The container with the price list cannot be started, or does not answer.
    """
    models: dict[str, None] = {}
    for config in (settings.config for settings in every):
        isolation = config.isolation
        if isolation.keys == "broker" and (config.budget_per_worker or config.budget_total):
            known = parse_prices(isolation.prices)
            named = (spec.model for spec in plan_workers(config) if spec.model is not None)
            models |= dict.fromkeys(
                name
                for name in named
                if known.keys().isdisjoint((name, name.rpartition("/")[2]))
                and _FULL_NAME.fullmatch(name)
            )
    if not models or isinstance(engine, ClusterEngine):
        return
    run = f"prices-{secrets.token_hex(4)}"
    container = engine.start(
        ContainerSpec(
            name=f"orchestrator-{run}-probe",
            image=BROKER_IMAGE,
            command=(_PYTHON, "-I", "-c", bundle(_PRICES), *models),
            user="65534:65534",
            workdir="/",
            labels=for_a_moment(repository, run=run),
        )
    )
    try:
        container.wait(_LIST)
        lines = b"".join(chunk.data for chunk in container.logs() if chunk.stream == "stdout")
        unpriced = TypeAdapter(list[str]).validate_json(lines)
    except (TimeoutError, ValidationError) as error:
        raise EngineError(
            "the broker's image does not tell its prices",
            key="broker.prices",
            hint="rebuild the broker's image: `orchestrator image build --agent broker`",
        ) from error
    finally:
        container.remove()
    # protection: budget-needs-price-before-anything-starts
    if unpriced:
        names = ", ".join(f"`{name}`" for name in unpriced)
        options = " ".join(f"--price {name}=IN/OUT" for name in unpriced)
        raise ConfigError(
            f"a budget with `--keys broker` needs the price of {names}, which is not in its list",
            key="price.unknown",
            hint=f"`{options}` sets it, in USD per million tokens of input and output",
        )


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
    program = (_PYTHON, "-I", "-c", bundle(_PROGRAM))
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
