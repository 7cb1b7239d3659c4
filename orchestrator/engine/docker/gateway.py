"""Confine a worker to the hosts of its allow-list, by a gateway in a network of its own.

The worker's network is internal and has two members. One is the guard container, whose network
namespace the worker shares. The other is the gateway: it is a member of the run's network too, and
runs a name server and a proxy (`network/gateway`). Published ports are those of the gateway,
which forwards clients to the worker.
"""

from dataclasses import dataclass, replace

import docker

from orchestrator.base.threads import meanwhile
from orchestrator.engine.docker.container import (
    NAMES_ENDED,
    PROXY_ENDED,
    DockerContainer,
    Gateway,
)
from orchestrator.engine.docker.dialect import Dialect
from orchestrator.engine.docker.firewall import (
    Place,
    await_ready,
    connect,
    create,
    gateway_of,
    guard_spec,
)
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.docker.networks import create_internal_network
from orchestrator.engine.docker.rules import (
    BURST,
    MOST_FLOWS,
    NEW_FLOWS,
    RESOLVER,
)
from orchestrator.engine.interface.labels import GATEWAY, PORTS, ROLE
from orchestrator.engine.interface.spec import CLOSED, ContainerSpec, Egress, TmpfsMount
from orchestrator.network.gateway.allowed_host import BROKER_PORT
from orchestrator.network.gateway.dns import dns_configuration
from orchestrator.network.gateway.packet_filter import PROGRAM, Rates, gateway_rules, worker_rules
from orchestrator.network.gateway.plan import NAME_SERVER, GatewayPlan
from orchestrator.network.gateway.proxy import proxy_configuration

_RATES = Rates(open=MOST_FLOWS, per_second=NEW_FLOWS, burst=BURST)
# Both programs run as an ordinary user without capabilities, and the container ends with the first
# of them. It is ready when both listen. To list the sockets of one namespace, the kernel walks all
# connections of the machine, so the script first waits until their number may be complete.
# protection: gateway-script
_GATEWAY_SCRIPT = f"""\
set -e
printf %s "$RULES" | nft -f -
printf %s "$NAMES" > /tmp/names
printf %s "$PROXY" > /tmp/proxy
low() {{
  exec setpriv --reuid={PROGRAM} --regid={PROGRAM} --clear-groups --inh-caps=-all \\
    --bounding-set=-all --no-new-privs "$@"
}}
count() {{
  while read -r kind _ number _; do [[ $kind != TCP: ]] || break; done < /proc/net/sockstat
}}
listen() {{
  mapfile -t open < /proc/net/tcp
  for port in $PORTS; do
    [[ "${{open[*]}}" == *":$port 00000000:0000 0A"* ]] || return
  done
}}
count; set -- $PORTS; complete=$((number + $#))
low dnsmasq -k -C /tmp/names --log-facility=- & names=$!
low haproxy -db -f /tmp/proxy & proxy=$!
# Nothing ever arrives here: to read it is to wait, without a process for each wait.
exec {{nothing}}<> /dev/udp/127.0.0.1/9
for ((tries = 1;; tries++)); do
  count
  if ((number >= complete || tries % 100 == 0)) && listen; then break; fi
  # This process must not signal those of another user.
  [[ -e /proc/$names && -e /proc/$proxy ]]
  read -rt 0.005 -u $nothing || true
done
exec {{nothing}}>&-
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
# protection: gateways-container-has-four-capabilities
_CAPABILITIES = ("NET_ADMIN", "SETGID", "SETPCAP", "SETUID")
# protection: gateways-memory-limited
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
    client: docker.APIClient,
    spec: ContainerSpec,
    egress: Egress,
    machine: MachineNetwork,
    *,
    dialect: Dialect,
) -> DockerContainer:
    """Start a worker's gateway and the guard that owns the worker's network; wait for both.

    Args:
        client: The Docker client.
        spec: The worker's container. The gateway reaches allowed hosts through `spec.network`.
        egress: The hosts that the worker may reach.
        machine: The engine's machine.
        dialect: What the engine accepts.

    Returns:
        The guard; removing the guard also removes the gateway and the network.

    Raises:
        EngineError: The gateway could not be started; no container or network remains.
    """
    # With an empty list, the gateway needs no name server.
    goes_out = bool(egress.hosts) or egress.learn
    servers = (machine.resolvers or (RESOLVER,)) if goes_out else ()
    link = spec.link
    network = _create_network(client, spec, machine)
    behind = Gateway(client, network.id)
    plan = GatewayPlan(
        hosts=egress.hosts or (),
        learn=egress.learn,
        address=network.gateway,
        worker=network.worker,
        resolvers=servers,
        machine=machine.gateway,
        closed=CLOSED,
        broker=None if link is None else link.broker,
        broker_port=BROKER_PORT if link is None else link.port,
        own=machine.addresses,
        # The gateway's port is that of this machine, which no allowed host is likely to use.
        published=spec.ports,
        publisher=gateway_of(client, spec.network) if spec.ports else None,
    )
    return _Helpers(client, dialect, spec, egress.image, plan, behind).start()


@dataclass(frozen=True)
class _Helpers:
    """The two helper containers of one worker."""

    client: docker.APIClient
    dialect: Dialect
    spec: ContainerSpec
    image: str
    plan: GatewayPlan
    behind: Gateway

    def start(self) -> DockerContainer:
        """Start guard and gateway at the same time, return the guard; on failure, remove both."""
        guard = None
        try:
            with meanwhile(self._start_gateway):
                guard = self._create_guard()
                guard.start()
                await_ready(guard)
        except BaseException:
            if guard is not None:
                guard.remove()
            self.behind.remove()
            raise
        guard.gateway, guard.ports = self.behind, self.spec.ports
        return guard

    def _create_guard(self) -> DockerContainer:
        inside = replace(self.spec, network=self.behind.network, ports={})
        described = _guard_spec(inside, self.image, self.plan)
        place = Place(address=self.plan.worker, writable=True)
        return create(self.client, described, dialect=self.dialect, place=place)

    def _start_gateway(self) -> None:
        described = _gateway_spec(self.spec, self.image, self.plan)
        link, place = self.spec.link, None
        # No port is published in the broker's network, which is internal.
        if link is not None and not self.plan.resolvers and not self.spec.ports:
            described = replace(described, network=link.network)
            place = Place(address=link.address, writable=False)
        gateway = create(self.client, described, dialect=self.dialect, place=place)
        self.behind.container = gateway
        connect(self.client, gateway, self.behind.network, self.plan.address)
        if link is not None and place is None:
            connect(self.client, gateway, link.network, link.address)
        gateway.start()
        await_ready(gateway)


def _gateway_name(spec: ContainerSpec) -> str:
    return f"{spec.name}-gateway"


def _guard_spec(spec: ContainerSpec, image: str, plan: GatewayPlan) -> ContainerSpec:
    ports = " ".join(f"{inside}:{port}" for inside, port in plan.published.items())
    return guard_spec(
        spec,
        image=image,
        command=("sh", "-c", _GUARD_SCRIPT),
        env={"RULES": worker_rules(plan, _RATES), "NAME_SERVER": plan.address},
        labels={GATEWAY: _gateway_name(spec), **({PORTS: ports} if ports else {})},
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
            "NAMES": dns_configuration(plan),
            "PROXY": proxy_configuration(plan),
            "PORTS": " ".join(ports),
        },
        labels={ROLE: "gateway"},
        name=_gateway_name(spec),
        capabilities=_CAPABILITIES,
        mounts=(TmpfsMount(target="/tmp", size=_SCRATCH),),  # noqa: S108  # the container's own
        memory=_GATEWAY_MEMORY,
        pids=_GATEWAY_PIDS,
        open_files=_GATEWAY_FILES,
        kept_output=_KEPT_LOG,
    )


def _create_network(
    client: docker.APIClient, spec: ContainerSpec, machine: MachineNetwork
) -> _Network:
    """Create a worker's internal network.

    Raises:
        EngineError: The engine refused every subnet.
    """
    labels = {**spec.labels, ROLE: "gateway-network"}
    created = create_internal_network(client, _gateway_name(spec), labels, machine=machine)
    _, worker, gateway, *_ = map(str, created.subnet.hosts())
    return _Network(id=created.id, worker=worker, gateway=gateway)
