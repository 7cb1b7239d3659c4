"""The plan of one gateway: the allowed hosts, and the addresses of its networks."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from orchestrator.gateway.allowed_host import BROKER_PORT, DOCKER_HOST, AllowedHost
from orchestrator.gateway.hosts import UNREACHABLE

NAME_SERVER = 53
_HTTP, _TLS = 80, 443


@dataclass(frozen=True, kw_only=True)
class GatewayPlan:
    """The allowed hosts of one gateway, and the addresses of its networks."""

    hosts: tuple[AllowedHost, ...]
    learn: bool = False
    """Whether all public hosts are reachable too, by HTTP at port 80 and TLS at port 443."""
    address: str
    """Address of the gateway in the worker's network."""
    worker: str
    """Address of the worker."""
    resolvers: tuple[str, ...]
    """Name servers that the gateway asks."""
    machine: str
    """Address of this machine for `host.docker.internal`."""
    closed: tuple[str, ...]
    """Networks that are reached only where an entry opens them."""
    broker: str | None = None
    """Address of the run's credential broker; None if the worker has no access to it."""
    broker_port: int = BROKER_PORT
    """Port of the gateway that leads to the broker."""
    own: tuple[str, ...]
    """This machine's own addresses, which no network of an entry opens."""

    @cached_property
    def ports(self) -> tuple[int, ...]:
        """The ports that the worker may connect to, in ascending order."""
        own = set() if self.broker is None else {self.broker_port}
        return tuple(sorted({*self.host_ports} | own))

    @cached_property
    def host_ports(self) -> tuple[int, ...]:
        """The ports of the allowed hosts, in ascending order."""
        public = {_HTTP, _TLS} if self.learn else set()
        return tuple(sorted({host.port for host in self.hosts} | public))

    def is_plain(self, port: int) -> bool:
        """Return whether hosts speak HTTP without TLS at a port."""
        listed = [host.plain for host in self.hosts if host.port == port]
        return listed[0] if listed else port == _HTTP

    @cached_property
    def unreachable(self) -> tuple[str, ...]:
        """Networks and addresses that no entry of the allow-list can open."""
        return _collapsed((*UNREACHABLE, *self.own))

    @cached_property
    def not_public(self) -> tuple[str, ...]:
        """Networks and addresses that only entries of the allow-list can open."""
        return _collapsed((*self.closed, *self.unreachable))

    @cached_property
    def private(self) -> tuple[AllowedHost, ...]:
        """The allowed hosts that may be in a private network."""
        return tuple(host for host in self.hosts if host.network is not None)

    @cached_property
    def ports_of_machine(self) -> tuple[int, ...]:
        """The ports of this machine that the list opens as `host.docker.internal`."""
        return tuple(sorted({host.port for host in self.hosts if host.name == DOCKER_HOST}))


def _collapsed(networks: Iterable[str]) -> tuple[str, ...]:
    """Return the same addresses without overlaps, because `nft` refuses networks that overlap."""
    parsed = map(ipaddress.IPv4Network, networks)
    return tuple(map(str, ipaddress.collapse_addresses(parsed)))
