"""Specification of a container: image, command, mounts, network, limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.gateway.allowed_host import BROKER_PORT, AllowedHost


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
    """Whether a directory of `lower` can be renamed. The kernel then records its old path in
    `upper`, relative to the root of `lower`; false where `upper` is part of another overlay's upper
    layer.
    """


@dataclass(frozen=True, kw_only=True)
class TmpfsMount:
    """Scratch space in memory, of at most `size` bytes and `inodes` files."""

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
    """Image with `nft`, and with `dnsmasq` and `haproxy` for a gateway."""
    allowed: tuple[tuple[str, int | None], ...] = ()
    """Pairs of destination and port. A destination is an address, a network, or
    `host.docker.internal` for the host; port None stands for all ports.
    """
    hosts: tuple[AllowedHost, ...] | None = None
    """Allow-list of a container that reaches nothing but these hosts, through a gateway of its own;
    None: all public destinations. Only for engines with the feature `gateways`.
    """
    learn: bool = False
    """Whether the gateway also opens all public hosts, and records those that are reached."""


@dataclass(frozen=True, kw_only=True)
class BrokerLink:
    """The place of a container in the network of the run's credential broker.

    Programs of a worker reach the broker by the name `BROKER_NAME`, and nothing else there.
    """

    network: str
    """Id of a network that `create_private_network` returned."""
    address: str
    """Address by which the broker knows the worker, or the broker's own address."""
    broker: str | None = None
    """Address of the broker; None if this container is the broker."""
    port: int = BROKER_PORT
    """Port of `BROKER_NAME`. Without a gateway, this must be `BROKER_PORT`."""


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Full specification of one container. Whatever is not specified is denied."""

    name: str
    image: str
    command: tuple[str, ...]
    """Replaces the image's entrypoint and command, unless `own_program` is set."""
    user: str
    """`uid:gid`, never 0 for anything a worker wrote; empty for the image's default user."""
    workdir: str
    """Working directory; empty for the image's default."""
    labels: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[BindMount | OverlayMount | TmpfsMount, ...] = ()
    network: str = "none"
    """`none`, or the id of a network that `create_network` returned."""
    egress: Egress | None = None
    """Filter of the network's connections; None leaves them unfiltered."""
    link: BrokerLink | None = None
    """Connection to the run's credential broker; needs `egress`. Only for engines with the feature
    `gateways`.
    """
    network_of: str | None = None
    """Id of a running container whose network, with its `localhost`, this container joins. The
    `network`, `egress`, `extra_hosts` and `ports` of that container apply; those given here are
    ignored.
    """
    own_program: bool = False
    """Start the image's own entrypoint; `command`, if any, becomes its arguments."""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    """Host name to address, in addition to the network's own DNS."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Published ports: container port to port on 127.0.0.1."""
    cpus: float | None = None
    memory: int = 512 * 1024**2
    pids: int = 256
    open_files: int = 4096
    capabilities: tuple[str, ...] = ()
    """For helper containers and services only; a worker has no capabilities."""
    runtime: str | None = None
    kept_output: int = 0
    """Bytes of output that the engine keeps for a process that resumes the run; 0 keeps none."""
