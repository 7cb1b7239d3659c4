"""Create internal networks, in which this machine has no address."""

import ipaddress
from collections.abc import Mapping
from typing import Any

import docker
from docker.types import IPAMConfig, IPAMPool

from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.subnets import SMALLEST, free_subnets
from orchestrator.engine.protocol import PrivateNetwork
from orchestrator.errors import EngineError

_OPTIONS = {"com.docker.network.bridge.inhibit_ipv4": "true"}


def create_internal_network(
    client: docker.APIClient,
    name: str,
    labels: Mapping[str, str],
    *,
    used: tuple[str, ...],
    prefix: int = SMALLEST,
) -> PrivateNetwork:
    """Create an internal network in a free subnet.

    Args:
        client: The Docker client.
        name: Name of the network.
        labels: Labels of the network.
        used: Addresses that must not be in the subnet, because they must stay reachable.
        prefix: Length of the subnet's prefix.

    Raises:
        EngineError: The engine refused every subnet.
    """
    problem = "no subnet is free"
    for subnet in free_subnets(used, prefix=prefix):
        try:
            created = _create(client, name, subnet, labels)
        except EngineError as error:
            # Another program uses the subnet; the engine only knows its own networks.
            if "overlap" not in error.message:
                raise
            problem = error.message
            continue
        return PrivateNetwork(id=created["Id"], subnet=subnet)
    raise EngineError(f"cannot create the network `{name}`: {problem}")


def _create(
    client: docker.APIClient, name: str, subnet: ipaddress.IPv4Network, labels: Mapping[str, str]
) -> Mapping[str, Any]:
    with translated("create the network"):
        created: Mapping[str, Any] = client.create_network(
            name,
            driver="bridge",
            internal=True,
            options=_OPTIONS,
            ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))]),
            labels=dict(labels),
        )
    return created
