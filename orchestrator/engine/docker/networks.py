"""Create networks: a run's bridge, and internal networks in which this machine has no address.

Their subnets are chosen here, because Docker's own pools suffice for only 30 networks.
"""

import hashlib
import ipaddress
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import docker
import docker.errors
from docker.types import IPAMConfig, IPAMPool

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker.container import DockerContainer
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.interface.protocol import PrivateNetwork
from orchestrator.engine.interface.spec import ContainerSpec

Made = TypeVar("Made", bound=DockerContainer)
Make = Callable[[ContainerSpec], Made]
"""Function that creates a container in the network that the specification names."""

# protection: host-has-no-address-in-workers-network
_OPTIONS = {"com.docker.network.bridge.inhibit_ipv4": "true"}
_BRIDGE = "com.docker.network.bridge.name"
_LONGEST = 15
"""Maximum number of characters in the name of an interface."""
_POOLS = (ipaddress.IPv4Network("198.18.0.0/15"), ipaddress.IPv4Network("10.201.0.0/16"))
"""Address ranges to choose subnets from: the range for benchmarks (RFC 2544), and a private range
for machines that already use the range for benchmarks.
"""
SMALLEST = 29
"""Prefix length of a subnet with room for a worker and its gateway."""
_TRIES = 100


def bridge_of(name: str) -> str:
    """Return the name of the bridge of a network that `create_bridge` creates."""
    return f"br-{hashlib.sha256(name.encode()).hexdigest()}"[:_LONGEST]


def create_bridge(
    client: docker.APIClient, name: str, labels: Mapping[str, str], machine: MachineNetwork
) -> str:
    """Create a bridge network whose containers cannot reach each other, and return its id.

    Raises:
        EngineError: The network could not be created, or its bridge exists and is not ours.
    """
    bridge = bridge_of(name)
    # The engine would use an existing bridge, with all that is connected to it.
    # protection: bridge-of-another-program-is-not-used
    if bridge in machine.interfaces:
        raise EngineError(
            f"cannot create the network: the interface `{bridge}` exists", key="network.exists"
        )
    with translated("create the network"):
        # protection: workers-in-one-network-are-separated
        # protection: name-of-another-network-is-not-used
        network_id: str = client.create_network(
            name,
            driver="bridge",
            check_duplicate=True,
            options={"com.docker.network.bridge.enable_icc": "false", _BRIDGE: bridge},
            labels=dict(labels),
        )["Id"]
    return network_id


def find_bridge(client: docker.APIClient, network: str) -> tuple[str | None, str]:
    """Return the id of a network and the name of its bridge; without an id if it does not exist."""
    with translated("inspect the network"):
        try:
            found = client.inspect_network(network)
        except docker.errors.NotFound:
            return None, bridge_of(network)
    options: dict[str, str] = found["Options"] or {}
    return found["Id"], options.get(_BRIDGE, f"br-{found['Id'][:12]}")


def create_internal_network(
    client: docker.APIClient,
    name: str,
    labels: Mapping[str, str],
    *,
    machine: MachineNetwork,
    prefix: int = SMALLEST,
) -> PrivateNetwork:
    """Create an internal network in a free subnet.

    Raises:
        EngineError: The engine refused every subnet.
    """
    problem = "no subnet is free"
    used = (*machine.resolvers, machine.gateway)
    for subnet in free_subnets(used, machine.routed, prefix=prefix):
        try:
            created = _create(client, name, subnet, labels)
        except EngineError as error:
            # Another program uses the subnet; the engine only knows its own networks.
            if "overlap" not in error.message:
                raise
            problem = error.message
            continue
        return PrivateNetwork(id=created["Id"], subnet=subnet)
    raise EngineError(f"cannot create the network `{name}`: {problem}", key="network.failed")


def _create(
    client: docker.APIClient, name: str, subnet: ipaddress.IPv4Network, labels: Mapping[str, str]
) -> Mapping[str, Any]:
    with translated("create the network"):
        # protection: workers-network-is-internal
        created: Mapping[str, Any] = client.create_network(
            name,
            driver="bridge",
            internal=True,
            options=_OPTIONS,
            ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))]),
            labels=dict(labels),
        )
    return created


def free_subnets(
    used: Iterable[str], routed: Iterable[ipaddress.IPv4Network], *, prefix: int = SMALLEST
) -> Iterator[ipaddress.IPv4Network]:
    """Yield subnets without used addresses that overlap with no route, in random order."""
    taken = [*routed, *map(ipaddress.IPv4Network, used)]
    for pool in _POOLS:
        for _ in range(_TRIES):
            offset = secrets.randbelow(2 ** (prefix - pool.prefixlen)) << (32 - prefix)
            subnet = ipaddress.IPv4Network((int(pool.network_address) + offset, prefix))
            if not any(subnet.overlaps(other) for other in taken):
                yield subnet
