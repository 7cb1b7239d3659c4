"""What a container is made of: mounts, network, limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class BindMount:
    """A host path seen inside."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class OverlayMount:
    """`lower` seen inside; whatever is written lands in `upper` and never in `lower`."""

    lower: Path
    upper: Path
    work: Path
    target: str
    read_only: bool = False
    """Whether nothing can be written at all."""
    redirects: bool = True
    """Whether a directory of `lower` can be renamed. Its old path is then recorded in `upper`, from
    the root of `lower`: false where `upper` is a part of another overlay's upper layer."""


@dataclass(frozen=True, kw_only=True)
class TmpfsMount:
    """Memory-backed scratch space of at most `size` bytes and `inodes` files."""

    target: str
    size: int
    inodes: int = 200_000
    mode: str = "1777"


@dataclass(frozen=True, kw_only=True)
class Egress:
    """What a container on a network must not reach, and what it may all the same.

    Closed: the machine itself, private and link-local networks (with the cloud's metadata service),
    other containers. The rules stand before the container starts, out of its reach.
    """

    image: str
    """Where the rules are set from; it has `nft`."""
    allowed: tuple[tuple[str, int | None], ...] = ()
    """Address or network, or `host.docker.internal` for the machine itself; port, or None for all.
    """


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """One container, wholly described. Everything not said is closed."""

    name: str
    image: str
    command: tuple[str, ...]
    """Takes the place of all that the image would start, unless `own_program`."""
    user: str
    """`uid:gid`, never 0 for anything a worker wrote; empty for the image's own."""
    workdir: str
    """Empty for the image's own."""
    labels: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[BindMount | OverlayMount | TmpfsMount, ...] = ()
    network: str = "none"
    """`none`, or the id of a network made by `create_network`."""
    egress: Egress | None = None
    """None leaves the network as it is."""
    network_of: str | None = None
    """The id of a running container: its network is shared, with its `localhost` and all that
    `network`, `egress`, `extra_hosts` and `ports` say of it, and nothing of this one's."""
    own_program: bool = False
    """The image's own program is started; `command`, if any, is what it is called with."""
    extra_hosts: Mapping[str, str] = field(default_factory=dict)
    """Host name to address, beside what the network knows."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Container port to port on 127.0.0.1."""
    cpus: float | None = None
    memory: int = 512 * 1024**2
    pids: int = 256
    open_files: int = 4096
    capabilities: tuple[str, ...] = ()
    """Kept for helpers of ours and for services; a worker has none."""
    runtime: str | None = None
    kept_output: int = 0
    """Bytes of output that the engine keeps a copy of, for a process that takes over; 0 is none."""
