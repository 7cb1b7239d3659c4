"""Block a worker's network from reaching the host, private networks and other workers.

A helper container, one for each run, sets rules in the host's own network namespace that block
access to the host. These rules do not list addresses, so they also cover addresses that the host
gets later. On an open network, the helper also sets the rules in the network namespace of each
worker, which has no capability to change them.

If the helper cannot do this, and for networks with a gateway, a broker or published ports, a guard
container joins the worker's network first, sets the rules in its own network namespace, and keeps
running. The worker's container then shares this namespace.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import docker

from orchestrator.base.errors import EngineError
from orchestrator.base.text.sanitize import output_line
from orchestrator.base.threads import unless_over
from orchestrator.engine.docker import network_filter
from orchestrator.engine.docker.arguments import create_arguments
from orchestrator.engine.docker.container import DockerContainer, remove_container
from orchestrator.engine.docker.dialect import Dialect
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_defaults import image_config, overridden
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.docker.network_filter import READY, SERVE, Helper
from orchestrator.engine.docker.rules import HOST, cut_rules, guard_rules, host_rules
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import GATEWAY, ROLE
from orchestrator.engine.interface.spec import BindMount, ContainerSpec, Egress
from orchestrator.network.gateway.allowed_host import BROKER_NAME, BROKER_PORT

_READY = b"guarded"
# protection: container-does-not-start-if-its-rules-fail
_SCRIPT = f'printf %s "$RULES" | nft -f - && echo {_READY.decode()} && exec sleep infinity'
_CUT_SCRIPT = f'printf %s "$RULES" | nft -f - 2>&1 && echo {_READY.decode()}'
# The table belongs to the `nft` process that created it: when the process ends for any reason, the
# kernel removes the table, so that nothing stays on the host. Its list of the table shows that the
# rules are active; no error message of `nft` contains the words that are looked for.
_HOST_SCRIPT = f"""\
{SERVE}
exec 3<&0
coproc TABLE {{ exec nft -i 2>&1; }}
printf '%s\\n' "$RULES" "list table inet $TABLE_NAME" >&"${{TABLE[1]}}"
if [[ -e /machine ]]; then
  # Meanwhile, because both take long.
  (cd -P /machine/self && nsenter --net="$PWD/ns/net" true) 2>&1 || exit
fi
while read -r line <&"${{TABLE[0]}}"; do
  case $line in
    *"counter packets"*) active=yes; break ;;
    *Error*) echo "$line"; exit 1 ;;
  esac
done
[[ ${{active-}} == yes ]] || exit
if [[ -e /machine ]]; then serve <&3 & fi
echo {READY}
wait -n
"""
_MACHINE = BindMount(source=Path("/proc"), target="/machine", read_only=True)
_FILTERING = ("NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE")
"""Capabilities with which the helper enters the network namespaces of workers."""
# protection: guards-memory-limited
_MEMORY = 64 * 1024**2
# protection: guards-processes-limited
_PIDS = 16
_HELPER_PIDS = 64
_PATIENCE = 60.0
"""Maximum number of seconds that a helper container may take until its rules are active."""
_LONGEST = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Place:
    """Address of a helper container, and whether its root is writable: not in `ContainerSpec`."""

    address: str
    """Address of the container in its network."""
    writable: bool
    """Whether the container can write to its root file system."""

    def apply(self, arguments: dict[str, Any], client: docker.APIClient) -> None:
        """Add address and write permission to the arguments of `APIClient.create_container`."""
        host_config = arguments["host_config"]
        endpoint = client.create_endpoint_config(ipv4_address=self.address)
        arguments["networking_config"] = client.create_networking_config(
            {host_config["NetworkMode"]: endpoint}  # type: ignore[arg-type]  # wrong in the stubs
        )
        host_config["ReadonlyRootfs"] = not self.writable


def start_guard(
    client: docker.APIClient,
    spec: ContainerSpec,
    egress: Egress,
    machine: MachineNetwork,
    *,
    dialect: Dialect,
) -> DockerContainer:
    """Start the guard container, which owns a worker's network, and wait for its firewall rules.

    Raises:
        PortTakenError: A host port of `spec.ports` is in use.
        EngineError: The rules could not be set.
    """
    guard = create(client, _guard_spec(spec, egress, machine), dialect=dialect)
    try:
        if spec.link is not None:
            connect(client, guard, spec.link.network, spec.link.address)
        guard.start()
        # protection: rules-are-active-before-worker-starts
        await_ready(guard)
    except BaseException:
        guard.remove()
        raise
    return guard


def create(
    client: docker.APIClient,
    spec: ContainerSpec,
    *,
    dialect: Dialect,
    place: Place | None = None,
) -> DockerContainer:
    """Create a container and attach to its output; the image decides nothing but its files."""
    config = image_config(client, spec.image)
    spec = overridden(spec, config)
    arguments = create_arguments(client, spec, dialect, config)
    if place is not None:
        place.apply(arguments, client)
    with translated("create the container"):
        created = client.create_container(**arguments)
    try:
        container = DockerContainer(client, created["Id"], ports=spec.ports)
        container.has_layer = not spec.read_only
        return container
    except BaseException:
        remove_container(client, created["Id"])
        raise


def connect(
    client: docker.APIClient, container: DockerContainer, network: str, address: str
) -> None:
    """Connect a container, before its start, to a second network."""
    with translated("connect the container to a network"):
        client.connect_container_to_network(container.id, network, ipv4_address=address)


def _guard_spec(spec: ContainerSpec, egress: Egress, machine: MachineNetwork) -> ContainerSpec:
    link = spec.link
    hosts = {**spec.extra_hosts, HOST: machine.gateway}
    if link is not None and link.broker is not None:
        hosts[BROKER_NAME] = link.broker
        # protection: worker-on-open-network-reaches-only-brokers-port
        egress = replace(egress, allowed=(*egress.allowed, (link.broker, BROKER_PORT)))
    # protection: guard-gets-none-of-workers-variables
    return guard_spec(
        replace(spec, extra_hosts=hosts),
        image=egress.image,
        command=("sh", "-c", _SCRIPT),
        env={"RULES": guard_rules(egress, machine)},
    )


def guard_spec(
    spec: ContainerSpec,
    *,
    image: str,
    command: tuple[str, ...],
    env: Mapping[str, str],
    labels: Mapping[str, str] = MappingProxyType({}),
    **others: Any,  # noqa: ANN401  # other fields of the specification
) -> ContainerSpec:
    """Return the specification of a helper container that shares only the network of a worker.

    Args:
        spec: The worker's container.
        image: Image of the helper.
        command: The command of the helper.
        env: Variables of the helper.
        labels: Labels in addition to the worker's.
        others: Fields of the specification that differ from a guard's.
    """
    # protection: guard-has-one-capability
    # protection: guard-has-no-mounts
    fields = {
        "name": f"{spec.name}-network",
        "capabilities": ("NET_ADMIN",),
        "mounts": (),
        "memory": _MEMORY,
        "pids": _PIDS,
        "kept_output": 0,
        **others,
    }
    return replace(
        spec,
        image=image,
        command=command,
        # No code of a worker runs here. Only root can use the capabilities of the container.
        user="0:0",
        workdir="/",
        labels={**spec.labels, ROLE: "guard", **labels},
        env=env,
        egress=None,
        link=None,
        cpus=None,
        runtime=None,
        **fields,
    )


def gateway_of(client: docker.APIClient, network: str = "bridge") -> str:
    """Return the host's address in a network. Default: Docker's default network."""
    with translated("inspect the network"):
        settings: dict[str, Any] = client.inspect_network(network)["IPAM"]["Config"][0]
    first = next(ipaddress.ip_network(settings["Subnet"]).hosts())
    return str(settings.get("Gateway", first))


def await_ready(guard: DockerContainer) -> None:
    """Wait until a helper container reports that its firewall rules are active.

    Raises:
        EngineError: The container reports an error, or has ended.
    """
    said = b""
    with unless_over(_PATIENCE, guard.close) as late:
        for chunk in guard.logs():
            said += chunk.data
            if _READY in said:
                return
            if len(said) > _LONGEST:
                break
    problem = output_line(said.decode("utf-8", "replace"))
    if late.is_set():
        problem = f"the container was not ready after {_PATIENCE:g} s"
    raise EngineError(
        f"cannot set up the firewall of the worker's network: {problem}",
        key="firewall.failed",
        hint="use `--network none`, or rebuild the base image: `orchestrator image build`",
    )


def cut_off(
    client: docker.APIClient,
    container: DockerContainer,
    start: Callable[[ContainerSpec], DockerContainer],
) -> None:
    """Take the network of a running container away: by rules inside, and from the engine's network.

    Args:
        client: The Docker client.
        container: The container.
        start: Starts a container.

    Raises:
        EngineError: The rules could not be set.
    """
    owner = container.guard or container
    with translated("inspect the container"):
        found = client.inspect_container(owner.id)
    labels: dict[str, str] = {**found["Config"]["Labels"], ROLE: "guard"}
    labels.pop(GATEWAY, None)
    closing = start(
        ContainerSpec(
            name=f"orchestrator-cut-{owner.id[:12]}",
            image=BASE_IMAGE,
            command=("sh", "-c", _CUT_SCRIPT),
            # No code of a worker runs here.
            user="0:0",
            capabilities=("NET_ADMIN",),
            workdir="/",
            labels=labels,
            env={"RULES": cut_rules()},
            network_of=container.id,
            memory=_MEMORY,
            pids=_PIDS,
        )
    )
    try:
        await_ready(closing)
    finally:
        closing.close()
        closing.remove()
    # protection: cut-off-container-has-no-network
    for network in found["NetworkSettings"]["Networks"]:
        with translated("disconnect the container from its network"):
            client.disconnect_container_from_network(owner.id, network, force=True)
    if owner.gateway is not None and owner.gateway.container is not None:
        # What it still carries ends with it.
        owner.gateway.container.remove()


def close_host(
    client: docker.APIClient,
    name: str,
    bridge: str,
    egress: Egress,
    labels: Mapping[str, str],
    machine: MachineNetwork,
    *,
    dialect: Dialect,
    workers: bool,
) -> Helper:
    """Start the helper that blocks access to the host from a network, and wait for its rules.

    Args:
        client: The Docker client.
        name: Name of the helper's container.
        bridge: Name of the network's bridge, which need not exist yet.
        egress: Destinations that stay reachable.
        labels: Labels of the container.
        machine: The engine's machine.
        dialect: What the engine accepts.
        workers: Whether the helper filters the network of workers too, which then need no guard.

    Raises:
        EngineError: The rules could not be set; no container is left.
    """
    table = f"orchestrator_{bridge.removeprefix('br-')}"
    rules = host_rules(table, bridge, egress, machine, workers=workers)
    env = {"RULES": rules, "TABLE_NAME": table, "BRIDGE": bridge}
    spec = _host_spec(name, egress.image, env, labels, workers=workers)
    config = image_config(client, spec.image)
    spec = overridden(spec, config)
    arguments = create_arguments(client, spec, dialect, config)
    with translated("create the container"):
        # Detached: the container's input stays open when the connection ends.
        created = client.create_container(**arguments, stdin_open=True, detach=True)["Id"]
    try:
        helper = Helper(client, created, machine)
        try:
            with translated("start the container"):
                client.start(created)
            helper.await_ready()
        except BaseException:
            helper.close()
            raise
    except BaseException:
        remove_container(client, created)
        raise
    return helper


def _host_spec(
    name: str, image: str, env: Mapping[str, str], labels: Mapping[str, str], *, workers: bool
) -> ContainerSpec:
    # protection: helper-has-one-capability
    return ContainerSpec(
        name=name,
        image=image,
        command=("bash", "-c", _HOST_SCRIPT),
        # No code of a worker runs here or reaches this container: no port, no file, no input.
        user="0:0",
        capabilities=_FILTERING if workers else ("NET_ADMIN",),
        mounts=(_MACHINE,) if workers else (),
        workdir="/",
        labels=labels,
        env={**env, "ALONE": str(network_filter.ALONE)},
        network="host",
        memory=_MEMORY,
        pids=_HELPER_PIDS,
    )
