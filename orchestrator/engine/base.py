"""The seam to a container engine: what it is told, what it gives back."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from orchestrator.events import Stream

MANAGED = "orchestrator.managed"
RUN = "orchestrator.run"
WORKER = "orchestrator.worker"
REPOSITORY = "orchestrator.repository"
DEADLINE = "orchestrator.deadline"
ROLE = "orchestrator.role"
SERVICE = "orchestrator.service"


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
    beside: str | None = None
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


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """How a container's main process ended."""

    exit_code: int
    oom_killed: bool


@dataclass(frozen=True, kw_only=True)
class LogChunk:
    """Some bytes of output, cut anywhere."""

    stream: Stream
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a running container uses now."""

    memory: int | None
    """Bytes, without the page cache that can be dropped."""
    pids: int | None
    pids_limit: int | None
    cpu: int | None = None
    """Nanoseconds of CPU time since its start, of all CPUs together."""


@dataclass(frozen=True, kw_only=True)
class EngineFeatures:
    """What an engine can do on this machine."""

    overlay: bool
    """Can mount a worktree as the lower layer of an overlay."""
    runtimes: tuple[str, ...]
    cpus: int
    memory: int
    """Bytes of the machine."""
    version: str
    """Name and version for people and records."""
    seccomp: bool = False
    """Can filter the system calls of containers with a profile of ours."""


@dataclass(frozen=True, kw_only=True)
class ContainerState:
    """How far a container has come, by the engine's clock."""

    started_at: datetime | None
    """None before its start."""
    ended_at: datetime | None
    """None while it runs."""


class Container(Protocol):
    """A container that was created, by this process or by another."""

    @property
    def id(self) -> str:
        """The engine's name for it."""

    @property
    def ports(self) -> Mapping[int, int]:
        """Container port to port on 127.0.0.1."""

    def start(self) -> None:
        """Start it; one that was started before is left alone, so that nothing runs twice.

        Raises:
            EngineError: It could not be started.
        """

    def state(self) -> ContainerState:
        """Tell how far it has come.

        Raises:
            EngineError: The container is gone or the engine does not answer.
        """

    def again(self) -> "Container | None":
        """Find it again after the engine hung up, or None when it is gone.

        Waits a while for the engine. Its `logs` start with the first byte that the engine has.

        Raises:
            EngineUnavailableError: The engine does not come back.
        """

    def logs(self) -> Iterator[LogChunk]:
        """Yield all output from the first byte until the container ends.

        To be read exactly once, and to the end: what is not read holds the container up.

        Raises:
            EngineError: The stream broke before the container ended.
        """

    def wait(self, timeout: float | None) -> ExitStatus:
        """Block until the container ends.

        Args:
            timeout: Seconds from this call, or None to wait for ever.

        Raises:
            TimeoutError: It still runs. It is not stopped; that is `kill`'s work.
            EngineError: The container is gone or the engine does not answer.
        """

    def kill(self, signal: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send a signal to the main process; a container that ended already is no error.

        A paused container is resumed so that the signal can be acted on.

        Raises:
            EngineError: The engine does not answer.
        """

    def usage(self) -> Usage | None:
        """Measure, or None when the container does not run any more.

        Raises:
            EngineError: The engine does not answer.
        """

    def remove(self) -> None:
        """Remove the container and its anonymous volumes, killing it first; repeatable.

        Raises:
            EngineError: The engine does not answer.
        """


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one running container uses now."""

    id: str
    labels: Mapping[str, str]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class TerminalSize:
    """How much of text a terminal shows."""

    rows: int
    columns: int


class InnerProcess(Protocol):
    """A command that was started in a running container, beside the container's own."""

    def output(self) -> Iterator[LogChunk]:
        """Yield all output until it ends, to be read once; with a terminal all of it is `stdout`.

        Raises:
            EngineError: The engine does not answer any more.
        """

    def write(self, data: bytes) -> None:
        """Give it input; without a terminal it has none.

        Raises:
            EngineError: It has ended.
        """

    def resize(self, size: TerminalSize) -> None:
        """Change the size of its terminal; one that has ended is no error."""

    def wait(self) -> int:
        """Give its exit code, once its output was read to the end.

        Raises:
            EngineError: Nobody knows: the container ended meanwhile.
        """

    def close(self) -> None:
        """Let go of its input and output; it is not ended by that."""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """An object of ours that the engine still holds."""

    kind: Literal["container", "network", "volume"]
    id: str
    labels: Mapping[str, str]


class ContainerEngine(Protocol):
    """Starts containers on one machine."""

    @property
    def name(self) -> str:
        """What `orchestrator.engines` calls it."""

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        """Make sure that a run can start here, before anything is made.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
            ImageNotFoundError: It lacks one of `images`.
            UnsupportedError: It lacks `runtime`.
        """

    def create(self, spec: ContainerSpec) -> Container:
        """Create a container that is yet to be started, its output to be kept from the first byte.

        Raises:
            PortTakenError: A host port of `spec.ports` is in use.
            EngineError: It could not be created; nothing is left behind.
        """

    def start(self, spec: ContainerSpec) -> Container:
        """Create and start a container.

        Raises:
            PortTakenError: A host port of `spec.ports` is in use; nothing was started.
            EngineError: It could not be started; nothing is left behind.
        """

    def adopt(self, container_id: str) -> Container | None:
        """Take over a container that another process created, or None when it is gone.

        Its `logs` start with the first byte that the engine still has.

        Raises:
            EngineError: The engine does not answer.
        """

    def enter(
        self,
        container_id: str,
        command: tuple[str, ...],
        *,
        terminal: TerminalSize | None = None,
        env: Mapping[str, str] | None = None,
    ) -> InnerProcess:
        """Start a command in a running container: as its user, in its directory.

        Args:
            container_id: The engine's name for it.
            command: The words of the command.
            terminal: Gives it a terminal of this size, and input.
            env: Variables beside those of the container.

        Raises:
            NotRunningError: The container is gone, has ended or is paused.
            EngineError: It could not be started.
        """

    def exposed_ports(self, image: str) -> tuple[int, ...]:
        """Give the TCP ports that an image says it listens on, the lowest first.

        Raises:
            ImageNotFoundError: It lacks the image.
            EngineError: It does not answer.
        """

    def create_network(self, name: str, labels: Mapping[str, str]) -> str:
        """Make a network whose containers reach out but not each other, and give its id.

        Raises:
            EngineError: It could not be made.
        """

    def close_host(
        self, name: str, network: str, egress: Egress, labels: Mapping[str, str]
    ) -> None:
        """Close the host to a network's containers, also at addresses that the host gets later.

        It holds until the container that is made for it is removed, which carries `labels`.

        Args:
            name: Of that container.
            network: What `create_network` gave.
            egress: What stays reachable all the same.
            labels: Of that container.

        Raises:
            EngineUnavailableError: The engine does not answer.
            EngineError: It cannot be had here; nothing is left of the attempt.
        """

    def usage(self, labels: Mapping[str, str]) -> list[Measurement]:
        """Measure the running containers that carry all of `labels`, whoever started them.

        Raises:
            EngineError: The engine does not answer.
        """

    def leftovers(self, labels: Mapping[str, str]) -> list[Leftover]:
        """List the objects that carry all of `labels`.

        Raises:
            EngineError: The engine does not answer.
        """

    def remove(self, leftover: Leftover) -> None:
        """Remove one object; already gone is no error.

        Raises:
            EngineError: The engine refused.
        """

    def close(self) -> None:
        """Let go of connections; the engine is not used again."""


Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """An image that an engine has."""

    id: str
    size: int
    """Bytes."""
    created: str
    """RFC 3339."""
    labels: Mapping[str, str]


class ImageEngine(Protocol):
    """An engine that can also make images."""

    def image_id(self, image: str) -> str | None:
        """Give the id of an image it has, or None."""

    def image_info(self, image: str) -> ImageInfo | None:
        """Describe an image it has, or None."""

    def labelled_images(self, label: str) -> Mapping[str, ImageInfo]:
        """Give the images that have a label, by each of their names."""

    def pull(self, image: str, *, progress: Progress) -> None:
        """Fetch an image from its registry.

        Raises:
            ImageBuildError: The registry cannot be reached or lacks it.
        """

    def import_image(self, tarball: Path, *, tag: str, labels: Mapping[str, str]) -> None:
        """Make an image of one layer out of a root file system.

        Raises:
            ImageBuildError: The tarball was refused.
        """

    def build(
        self,
        context: Path,
        *,
        dockerfile: str,
        tag: str,
        args: Mapping[str, str],
        labels: Mapping[str, str],
        progress: Progress,
        use_cache: bool = True,
        target: str | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """Build an image from a folder.

        Args:
            context: The folder.
            dockerfile: In the folder, or an absolute path.
            tag: What to call the image.
            args: Build arguments.
            labels: What the image is labelled with.
            progress: Called with each line that is printed.
            use_cache: Keep steps that were done before.
            target: The stage to build. Default: the last one.
            left_out: Paths below the folder, with `/`, that the build does not see, beside those of
                the folder's `.dockerignore`.

        Raises:
            ImageBuildError: A step failed; the message ends with what it printed last.
        """

    def tag(self, image: str, *, tag: str) -> None:
        """Give an image a second name.

        Raises:
            ImageNotFoundError: The engine does not have `image`.
        """


class Engine(ContainerEngine, ImageEngine, Protocol):
    """Both halves."""
