"""The plan of one gateway: the allowed hosts, and the addresses of its networks."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.network.gateway.allowed_host import BROKER_PORT, DOCKER_HOST, AllowedHost
from orchestrator.network.gateway.hosts import UNREACHABLE

NAME_SERVER = 53
_HTTP, _TLS = 80, 443


@dataclass(frozen=True, kw_only=True)
class GatewayPlan:
    """The allowed hosts of one gateway, and the addresses of its networks."""

    hosts: tuple[AllowedHost, ...]
    learn: bool = False
    """Whether the worker can also reach all public hosts, by HTTP at port 80 and TLS at port 443.
    """
    address: str
    """IP address of the gateway in the worker's network."""
    worker: str
    """IP address of the worker."""
    resolvers: tuple[str, ...]
    """IP addresses of the name servers that the gateway asks."""
    machine: str
    """IP address of this machine, for the name `host.docker.internal`."""
    closed: tuple[str, ...]
    """Networks that are blocked except where an entry of the allow-list opens them."""
    broker: str | None = None
    """IP address of the run's credential broker; None if the worker does not use the broker."""
    broker_port: int = BROKER_PORT
    """Port of the gateway at which workers reach the broker."""
    own: tuple[str, ...]
    """IP addresses of this machine, which no entry of the allow-list can open."""
    published: Mapping[int, int] = field(default_factory=dict)
    """Published ports: for each port in the worker's container, the gateway's port that forwards to
    that port.
    """
    publisher: str | None = None
    """IP address from which the engine forwards clients to published ports; None without ports."""

    @cached_property
    def ports(self) -> tuple[int, ...]:
        """The gateway's TCP ports that the worker may connect to, in ascending order."""
        own = set() if self.broker is None else {self.broker_port}
        return tuple(sorted({*self.host_ports} | own))

    @cached_property
    def host_ports(self) -> tuple[int, ...]:
        """The ports of the allowed hosts, in ascending order."""
        public = {_HTTP, _TLS} if self.learn else set()
        return tuple(sorted({host.port for host in self.hosts} | public))

    def is_plain(self, port: int) -> bool:
        """Return whether allowed hosts use HTTP without TLS at a port."""
        listed = [host.plain for host in self.hosts if host.port == port]
        return listed[0] if listed else port == _HTTP

    @cached_property
    def unreachable(self) -> tuple[str, ...]:
        """Return the networks and addresses that no entry of the allow-list can open."""
        return _collapse((*UNREACHABLE, *self.own))

    @cached_property
    def not_public(self) -> tuple[str, ...]:
        """Networks and addresses that are blocked even if all public hosts are allowed."""
        return _collapse((*self.closed, *self.unreachable))

    @cached_property
    def private(self) -> tuple[AllowedHost, ...]:
        """The allowed hosts that may be in a private network."""
        return tuple(host for host in self.hosts if host.network is not None)

    @cached_property
    def ports_of_machine(self) -> tuple[int, ...]:
        """Return the ports of this machine that entries for `host.docker.internal` open."""
        return tuple(sorted({host.port for host in self.hosts if host.name == DOCKER_HOST}))


def _collapse(networks: Iterable[str]) -> tuple[str, ...]:
    """Return networks that cover the same addresses without overlaps, as `nft` requires."""
    parsed = map(ipaddress.IPv4Network, networks)
    return tuple(map(str, ipaddress.collapse_addresses(parsed)))
