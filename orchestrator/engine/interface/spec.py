"""The specification of a container: image, command, mounts, network, limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.network.gateway.allowed_host import BROKER_PORT, AllowedHost

# protection: closed-networks
CLOSED = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
    "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
    "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4",
)  # fmt: skip
"""Address blocks that no worker can reach.

These are the blocks that the IANA registry of special-purpose IPv4 addresses does not call
globally reachable, multicast, the former 6to4 relays (RFC 7526), and the address of Azure's host
agent. Other clouds serve metadata in 169.254.0.0/16, 100.64.0.0/10 or 192.0.0.0/24.
"""


@dataclass(frozen=True, kw_only=True)
class BindMount:
    """A host path mounted into a container."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class OverlayMount:
    """An overlay mount: the container sees `lower`, and its writes go to `upper` only."""

    lower: Path
    upper: Path
    work: Path
    target: str
    read_only: bool = False
    """Whether the mount refuses all writes."""
    redirects: bool = True
    """Whether a directory of `lower` can be renamed. The kernel then records the old path in
    `upper`, relative to the root of `lower`. False if `upper` is part of another overlay's upper
    layer.
    """


@dataclass(frozen=True, kw_only=True)
class TmpfsMount:
    """A file system in memory, of at most `size` bytes and `inodes` files."""

    target: str
    size: int
    inodes: int = 200_000
    mode: str = "1777"


@dataclass(frozen=True, kw_only=True)
class Egress:
    """Network destinations that a container may reach although they are blocked by default.

    Blocked are the host, private and link-local networks (with the cloud's metadata service), and
    other containers. The rules are active before the container starts, and it cannot change them.
    """

    image: str
    """Image of helper containers, with `nft`; for a gateway also with `dnsmasq` and `haproxy`."""
    allowed: tuple[tuple[str, int | None], ...] = ()
    """Pairs of destination and port. A destination is an address, a network, or
    `host.docker.internal` for the host; port None stands for all ports.
    """
    hosts: tuple[AllowedHost, ...] | None = None
    """The only hosts that a container may reach, through its own gateway; None: all public hosts.
    Only for engines with the feature `gateways`.
    """
    learn: bool = False
    """Whether the gateway opens all public hosts too, and records which of them are reached."""


@dataclass(frozen=True, kw_only=True)
class BrokerLink:
    """How a container is connected to the network of the run's credential broker.

    A worker's programs reach the broker by the name `BROKER_NAME`, and nothing else in that
    network.
    """

    network: str = ""
    """Id of a network that `create_private_network` returned; empty if places have addresses."""
    address: str = ""
    """IP address by which the broker recognises the worker; in the broker's own container, the
    broker's address. Empty if places have addresses.
    """
    broker: str | None = None
    """IP address of the broker; None in the broker's own container."""
    port: int = BROKER_PORT
    """Port at which programs reach `BROKER_NAME`. Without a gateway, this must be `BROKER_PORT`."""


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Everything that is needed to create a container. Anything that is not specified is denied."""

    name: str
    image: str
    command: tuple[str, ...]
    """Command that replaces the image's entrypoint and command, unless `own_program` is set."""
    user: str
    """User and group as `uid:gid`, not 0 in a container that mounts files which a worker wrote;
    empty for the image's own user.
    """
    workdir: str
    """Working directory of the command; empty for the image's own working directory."""
    labels: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[BindMount | OverlayMount | TmpfsMount, ...] = ()
    network: str = "none"
    """`none`, or the id of a network that `create_network` returned."""
    egress: Egress | None = None
    """Filter for the connections of the network; None: no filter."""
    link: BrokerLink | None = None
    """Connection to the run's credential broker; needs `egress`. Only for engines with the feature
    `gateways`.
    """
    network_of: str | None = None
    """Id of a running container whose network, with its `localhost`, this container uses. The
    settings `network`, `egress`, `extra_hosts` and `ports` of that container apply; those of this
    specification are ignored.
    """
    own_program: bool = False
    """Whether to start the image's own entrypoint, with `command` as its arguments."""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    """IP addresses by host name, in addition to names that the network's DNS resolves."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Ports to publish: the port in the container, and the port on 127.0.0.1 that leads there."""
    cpus: float | None = None
    memory: int = 512 * 1024**2
    pids: int = 256
    open_files: int = 4096
    capabilities: tuple[str, ...] = ()
    """Linux capabilities, only for helper containers, services and sandboxes of the user root; a
    worker has none.
    """
    read_only: bool = True
    """Whether the container can write to its mounts only, not to the image's files."""
    runtime: str | None = None
    kept_output: int = 0
    """Number of bytes of output that the engine stores, so that another process can resume the run.
    """
