"""Confine a worker to the hosts of its allow-list, by a gateway in a network of its own.

The worker's network is internal and has two members. One is the guard container, whose network
namespace the worker shares. The other is the gateway: it is a member of the run's network too, and
runs a name server and a proxy (`orchestrator/gateway`). Published ports are those of the gateway,
which forwards clients to the worker.
"""

from dataclasses import dataclass, replace
from functools import partial

import docker

from orchestrator.engine.docker.container import (
    NAMES_ENDED,
    PROXY_ENDED,
    DockerContainer,
    Gateway,
)
from orchestrator.engine.docker.firewall import (
    Place,
    await_ready,
    connect,
    create,
    gateway_of,
    guard_spec,
)
from orchestrator.engine.docker.networks import create_internal_network
from orchestrator.engine.docker.rules import (
    BURST,
    CLOSED,
    MOST_FLOWS,
    NEW_FLOWS,
    RESOLVER,
    own_addresses,
    resolvers,
)
from orchestrator.engine.labels import GATEWAY, PORTS, ROLE
from orchestrator.engine.spec import ContainerSpec, Egress, TmpfsMount
from orchestrator.gateway.allowed_host import BROKER_PORT
from orchestrator.gateway.filters import PROGRAM, Rates, gateway_rules, worker_rules
from orchestrator.gateway.names import names_configuration
from orchestrator.gateway.plan import NAME_SERVER, GatewayPlan
from orchestrator.gateway.proxy import proxy_configuration
from orchestrator.threads import meanwhile

_RATES = Rates(open=MOST_FLOWS, per_second=NEW_FLOWS, burst=BURST)
# Both programs run as an ordinary user without capabilities, and the container ends with the first
# of them. It is ready when both listen.
_GATEWAY_SCRIPT = f"""\
set -e
printf %s "$RULES" | nft -f -
printf %s "$NAMES" > /tmp/names
printf %s "$PROXY" > /tmp/proxy
low() {{
  exec setpriv --reuid={PROGRAM} --regid={PROGRAM} --clear-groups --inh-caps=-all \\
    --bounding-set=-all --no-new-privs "$@"
}}
low dnsmasq -k -C /tmp/names --log-facility=- & names=$!
low haproxy -db -f /tmp/proxy & proxy=$!
for port in $PORTS; do
  until mapfile -t open < /proc/net/tcp; [[ "${{open[*]}}" == *":$port 00000000:0000 0A"* ]]; do
    # This process must not signal those of another user.
    [[ -e /proc/$names && -e /proc/$proxy ]]
    sleep 0.02
  done
done
# The proxy writes down every connection before it ends.
trap '(low bash -c "kill -USR1 $proxy"); wait "$proxy"; exit' TERM
echo guarded
wait -n -p ended || true
if [[ $ended == "$names" ]]; then exit {NAMES_ENDED}; fi
exit {PROXY_ENDED}
"""
# The worker shares the guard's network namespace and its `/etc/resolv.conf`.
_GUARD_SCRIPT = """\
printf 'nameserver %s\\n' "$NAME_SERVER" > /etc/resolv.conf || exit
printf %s "$RULES" | nft -f - && echo guarded && exec sleep infinity"""
_CAPABILITIES = ("NET_ADMIN", "SETGID", "SETPCAP", "SETUID")
_GATEWAY_MEMORY = 128 * 1024**2
_GATEWAY_PIDS = 32
_GATEWAY_FILES = 4096
"""Limit of open files in a gateway: more than twice the connections of its proxy."""
_SCRATCH = 4 * 1024**2
_KEPT_LOG = 1024**2


@dataclass(frozen=True, kw_only=True)
class _Network:
    """The network of one worker: its id and addresses."""

    id: str
    worker: str
    gateway: str


def start_gateway(
    client: docker.APIClient, spec: ContainerSpec, egress: Egress, *, seccomp: str | None
) -> DockerContainer:
    """Start a worker's gateway and the guard that owns the worker's network; wait for both.

    Args:
        client: The Docker client.
        spec: The worker's container; its network is the one through which the gateway goes out.
        egress: The hosts that the worker may reach.
        seccomp: The seccomp profile; None if the daemon cannot filter system calls.

    Returns:
        The guard; removing it removes the gateway and the network too.

    Raises:
        EngineError: The gateway could not be started; nothing is left.
    """
    # With an empty list, the gateway needs no name server.
    goes_out = bool(egress.hosts) or egress.learn
    servers = (tuple(resolvers()) or (RESOLVER,)) if goes_out else ()
    link = spec.link
    machine = gateway_of(client)
    network = _create_network(client, spec, used=(*servers, machine))
    behind = Gateway(client, network.id)
    plan = GatewayPlan(
        hosts=egress.hosts or (),
        learn=egress.learn,
        address=network.gateway,
        worker=network.worker,
        resolvers=servers,
        machine=machine,
        closed=CLOSED,
        broker=None if link is None else link.broker,
        broker_port=BROKER_PORT if link is None else link.port,
        own=tuple(own_addresses()),
        # The gateway's port is that of this machine, which no allowed host is likely to use.
        published=spec.ports,
        publisher=gateway_of(client, spec.network) if spec.ports else None,
    )
    try:
        described = _gateway_spec(spec, egress.image, plan)
        place = None
        # No port is published in the broker's network, which is internal.
        if link is not None and not goes_out and not spec.ports:
            described = replace(described, network=link.network)
            place = Place(address=link.address, writable=False)
        gateway = create(client, described, seccomp=seccomp, place=place)
        behind.container = gateway
        connect(client, gateway, network.id, plan.address)
        if link is not None and place is None:
            connect(client, gateway, link.network, link.address)
        inside = replace(spec, network=network.id, ports={})
        described = _guard_spec(inside, egress.image, plan, gateway.id)
        place = Place(address=plan.worker, writable=True)
        guard = create(client, described, seccomp=seccomp, place=place)
    except BaseException:
        behind.remove()
        raise
    guard.gateway, guard.ports = behind, spec.ports
    _start(guard, gateway)
    return guard


def _start(guard: DockerContainer, gateway: DockerContainer) -> None:
    """Start guard and gateway, and wait until both are ready; if this fails, remove both."""

    def start(container: DockerContainer) -> None:
        container.start()
        await_ready(container)

    try:
        with meanwhile(partial(start, gateway)):
            start(guard)
    except BaseException:
        guard.remove()
        raise


def _guard_spec(spec: ContainerSpec, image: str, plan: GatewayPlan, gateway: str) -> ContainerSpec:
    ports = " ".join(f"{inside}:{port}" for inside, port in plan.published.items())
    return guard_spec(
        spec,
        image=image,
        command=("sh", "-c", _GUARD_SCRIPT),
        env={"RULES": worker_rules(plan, _RATES), "NAME_SERVER": plan.address},
        labels={GATEWAY: gateway, **({PORTS: ports} if ports else {})},
    )


def _gateway_spec(spec: ContainerSpec, image: str, plan: GatewayPlan) -> ContainerSpec:
    published = tuple(plan.published.values())
    ports = (f"{port:04X}" for port in (NAME_SERVER, *plan.ports, *published))
    return guard_spec(
        replace(spec, extra_hosts={}, ports=dict(zip(published, published, strict=True))),
        image=image,
        command=("bash", "-c", _GATEWAY_SCRIPT),
        env={
            "RULES": gateway_rules(plan, _RATES),
            "NAMES": names_configuration(plan),
            "PROXY": proxy_configuration(plan),
            "PORTS": " ".join(ports),
        },
        labels={ROLE: "gateway"},
        name=f"{spec.name}-gateway",
        capabilities=_CAPABILITIES,
        mounts=(TmpfsMount(target="/tmp", size=_SCRATCH),),  # noqa: S108  # the container's own
        memory=_GATEWAY_MEMORY,
        pids=_GATEWAY_PIDS,
        open_files=_GATEWAY_FILES,
        kept_output=_KEPT_LOG,
    )


def _create_network(
    client: docker.APIClient, spec: ContainerSpec, *, used: tuple[str, ...]
) -> _Network:
    """Create a worker's internal network.

    Raises:
        EngineError: The engine refused every subnet.
    """
    labels = {**spec.labels, ROLE: "gateway-network"}
    created = create_internal_network(client, f"{spec.name}-gateway", labels, used=used)
    _, worker, gateway, *_ = map(str, created.subnet.hosts())
    return _Network(id=created.id, worker=worker, gateway=gateway)
