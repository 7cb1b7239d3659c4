"""The interface of container engines: calls that every engine implements, and their results."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Network
from typing import Literal, Protocol, runtime_checkable

from orchestrator.base.events import Stream
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.image_protocol import ImageEngine
from orchestrator.engine.interface.spec import ContainerSpec, Egress


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """How a container's main process ended, and what the kernel counted for the container."""

    exit_code: int
    oom_killed: bool
    """Whether the kernel killed a process of the container at the limit of memory."""
    counters: Counters = field(default=Counters(), compare=False)


@dataclass(frozen=True, kw_only=True)
class LogChunk:
    """Bytes of a container's output; a chunk may end in the middle of a line or character."""

    stream: Stream
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Resources that a running container uses at one moment."""

    memory: int | None
    """Memory in use in bytes, without the part of the page cache that the kernel can drop."""
    pids: int | None
    pids_limit: int | None
    cpu: int | None = None
    """CPU time in nanoseconds since the container's start, summed over all CPUs."""
    deleted: int = 0
    """Bytes on disk of deleted files that are still open, as far as they can be seen."""


@dataclass(frozen=True, kw_only=True)
class ContainerState:
    """Start and end of a container, by the engine's clock."""

    started_at: datetime | None
    """Start of the container; None before its start."""
    ended_at: datetime | None
    """End of the container; None while it runs."""


class Container(Protocol):
    """Handle of a container, created by this or by another process."""

    @property
    def id(self) -> str:
        """The engine's identifier of the container."""

    @property
    def ports(self) -> Mapping[int, int]:
        """Published ports: the port in the container, and the port of 127.0.0.1 leading there."""

    def start(self) -> None:
        """Start the container unless it was started before, so that nothing runs twice.

        Raises:
            EngineError: The container could not be started.
        """

    def state(self) -> ContainerState:
        """Return when the container started and ended.

        Raises:
            EngineError: The container is gone or the engine does not answer.
        """

    def again(self) -> "Container | None":
        """Reconnect to the container after the connection to the engine broke.

        Waits for the engine for a limited time. The new handle's `logs` start with the first byte
        that the engine kept.

        Returns:
            A new handle; None if the container is gone.

        Raises:
            EngineUnavailableError: The engine did not come back in time.
        """

    def logs(self) -> Iterator[LogChunk]:
        """Yield all output from the first byte until the container ends.

        The caller must read the iterator exactly once and to its end: unread output blocks the
        container.

        Raises:
            EngineError: The stream broke before the container ended.
        """

    def wait(self, timeout: float | None) -> ExitStatus:
        """Block until the container ends.

        Args:
            timeout: Seconds from this call, or None to wait without limit.

        Raises:
            TimeoutError: The container still runs. `wait` does not stop it; call `kill`.
            EngineError: The container is gone or the engine does not answer.
        """

    def kill(self, signal: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send a signal to the container's main process; a container that has ended is no error.

        A paused container is resumed first, so that its process can react to the signal.

        Raises:
            EngineError: The engine does not answer.
        """

    def pause(self) -> None:
        """Freeze all processes of the container; one that is paused already is no error.

        Raises:
            NotRunningError: The container is gone or has ended.
            UnsupportedError: The engine cannot pause containers.
        """

    def resume(self) -> None:
        """Let the processes of a paused container go on; one that is not paused is no error.

        Raises:
            NotRunningError: The container is gone or has ended.
            UnsupportedError: The engine cannot pause containers.
        """

    def usage(self) -> Usage | None:
        """Return current resource usage; None if the container is not running.

        Raises:
            EngineError: The engine does not answer.
        """

    def read_counters(self) -> Counters:
        """Return what the kernel has counted for the container so far.

        Raises:
            EngineError: The engine does not answer.
        """

    def lost_network(self) -> str | None:
        """Return why the container has lost its network; None if it has not, or had none.

        Raises:
            EngineError: The engine does not answer.
        """

    def network_lines(self) -> Iterator[bytes] | None:
        """Yield the lines that this container's gateway prints, until the gateway ends.

        Each line has a timestamp in front. The caller must read the iterator once and to its end:
        unread output blocks the gateway. Returns None if the container has no gateway.

        Raises:
            EngineError: The engine does not answer.
        """

    def end_network(self) -> None:
        """End this container's gateway, which then reports its open connections.

        The container must have ended. Without a gateway, the call has no effect.

        Raises:
            EngineError: The engine does not answer.
        """

    def remove(self) -> None:
        """Kill and remove the container and its anonymous volumes. Repeating the call is safe.

        Raises:
            EngineError: The engine does not answer.
        """


@runtime_checkable
class LayeredContainer(Protocol):
    """A container that may write to its root file system, of which it then has a layer."""

    def layer(self) -> DiskUse | None:
        """Measure what the container wrote to its root file system; None if it cannot.

        Raises:
            EngineError: The engine does not answer.
        """


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Resources that one container uses at one moment, with the container's labels."""

    id: str
    labels: Mapping[str, str]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class TerminalSize:
    """Size of a terminal in characters."""

    rows: int
    columns: int


class InnerProcess(Protocol):
    """A command started inside a running container, beside the container's main process."""

    @property
    def timed_out(self) -> bool:
        """Whether the command was ended because of its timeout."""

    def output(self) -> Iterator[LogChunk]:
        """Yield all output until the command ends. The caller reads the iterator once.

        With a terminal, all output is `stdout`. Processes that hold the output open after the
        command's end prolong it by one second at most.

        Raises:
            EngineError: The engine does not answer.
        """

    def write(self, data: bytes) -> None:
        """Send input to the command. This blocks while the command does not read its input.

        Raises:
            EngineError: The command has ended, or has no input.
        """

    def close_stdin(self) -> None:
        """End the command's input, so that it reads to an end; its output goes on.

        Raises:
            EngineError: The engine does not answer.
        """

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal; a command that has ended is no error."""

    def signal(self, name: str, *, group: bool = True) -> None:
        """Send a signal to the command; a command that has ended is no error.

        Args:
            name: Name of the signal, such as `SIGINT`.
            group: Whether all processes of the command's group get it.

        Raises:
            UnsupportedError: The signal cannot be sent.
            EngineError: The engine does not answer.
        """

    def wait(self) -> int:
        """Return the command's exit code; call this after `output` was read to its end.

        A command that died of a signal has 128 plus its number, as in a shell.

        Raises:
            EngineError: The exit code is unknown because the container ended first.
        """

    def close(self) -> None:
        """Close the command's input and output, and end it unless it was started to stay.

        A command that still runs gets SIGTERM, at a terminal SIGHUP too, and after its grace
        SIGKILL; so do all processes of its session, and those that have left it with the mark in
        their environment. What a command leaves running when it ends by itself is not ended.
        """


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """An object created by the orchestrator that still exists in the engine."""

    kind: Literal["container", "network", "volume"]
    id: str
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class PrivateNetwork:
    """A network without internet access, in which this machine has no address."""

    id: str
    subnet: IPv4Network
    """Subnet of the network. Its second and all further addresses can be given to containers."""


class ContainerEngine(Protocol):
    """An engine that runs containers on one machine."""

    @property
    def name(self) -> str:
        """Name under which the engine's entry point is registered in `orchestrator.engines`."""

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        """Check that the engine can run the containers of a run, and return its features.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
            ImageNotFoundError: The engine lacks one of `images`.
            UnsupportedError: The engine lacks `runtime`.
        """

    def create(self, spec: ContainerSpec) -> Container:
        """Create a container without starting it. Its output is captured from the first byte.

        Raises:
            PortTakenError: A host port of `spec.ports` is in use.
            EngineError: The container could not be created; nothing is left behind.
        """

    def start(self, spec: ContainerSpec) -> Container:
        """Create and start a container.

        Raises:
            PortTakenError: A host port of `spec.ports` is in use; nothing was started.
            EngineError: The container could not be started; nothing is left behind.
        """

    def adopt(self, container_id: str) -> Container | None:
        """Return a handle of a container that another process created; None if it is gone.

        The handle's `logs` start with the first byte that the engine kept.

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
        stdin: bool = False,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = 2.0,
        stays: bool = False,
    ) -> InnerProcess:
        """Start a command in a running container.

        A command that cannot be started has the exit code 126 or 127, as in a shell. When this
        process dies, or its connection to the engine breaks, the command is ended as by `close`.
        A command with input but without a terminal may then live until its timeout, if that is
        at most ten seconds.

        A hostile command can end what watches it inside the container. The engine ends it all the
        same after its timeout; once this process is dead too, it lives as long as its container.

        Args:
            container_id: The engine's identifier of the container.
            command: The command and its arguments.
            terminal: Size of the terminal to allocate; None: no terminal.
            env: Variables added to those of the container.
            stdin: Whether the command has input without a terminal; otherwise it is empty.
            user: User of the command, as in `docker exec`. Default: the container's user.
            cwd: Working directory of the command. Default: that of the container.
            timeout: Seconds after which the command is ended, inside the container.
            grace: Seconds between SIGTERM and SIGKILL, for the timeout and for `close`.
            stays: Whether the command goes on after `close` and after the death of this process.

        Raises:
            NotRunningError: The container is gone, has ended or is paused.
            UnsupportedError: The container's image has no shell, or the engine cannot do this.
            EngineError: The command could not be started.
        """

    def commit(self, container_id: str, name: str, labels: Mapping[str, str]) -> str:
        """Make an image of a container's root file system, and return the image's id.

        What is on mounts, volumes and file systems in memory is not in the image. The container is
        paused meanwhile.

        Args:
            container_id: The engine's identifier of the container.
            name: Name of the image.
            labels: Labels of the image, in addition to those of its container.

        Raises:
            NotRunningError: The container is gone.
            UnsupportedError: The engine cannot make images of containers.
            EngineError: The engine refused.
        """

    def exposed_ports(self, image: str) -> tuple[int, ...]:
        """Return the TCP ports that an image declares with `EXPOSE`, in ascending order.

        Raises:
            ImageNotFoundError: The engine lacks the image.
            EngineError: The engine does not answer.
        """

    def has_command(self, image: str) -> bool:
        """Return whether an image has a command of its own, which starts without another one.

        Raises:
            ImageNotFoundError: The engine lacks the image.
            EngineError: The engine does not answer.
        """

    def create_network(self, name: str, labels: Mapping[str, str]) -> str:
        """Create a network whose containers cannot reach each other, and return the network's id.

        Raises:
            EngineError: The network could not be created.
        """

    def create_private_network(
        self, name: str, labels: Mapping[str, str], *, addresses: int
    ) -> PrivateNetwork:
        """Create a network without internet access, for a credential broker and its workers.

        Only for engines with the feature `gateways`.

        Args:
            name: Name of the network.
            labels: Labels of the network.
            addresses: Number of containers that the network must have room for.

        Raises:
            EngineError: The network could not be created.
        """

    def close_host(
        self, name: str, network: str, egress: Egress, labels: Mapping[str, str]
    ) -> str | None:
        """Block connections from a network's containers to every address of the host.

        Addresses that the host gets later are blocked too. The block lasts until the helper
        container that this call creates is removed. If possible, the helper also filters the
        network of each container with an open network, which then needs no other container.

        Args:
            name: Name of the helper container.
            network: Name of the network, which another thread may be creating at the same time.
            egress: Destinations that stay reachable.
            labels: Labels of the helper container.

        Returns:
            Why the helper does not filter the networks of containers; None if it does.

        Raises:
            EngineUnavailableError: The engine does not answer.
            EngineError: The host cannot be blocked on this machine; nothing is left behind.
        """

    def usage(self, labels: Mapping[str, str]) -> list[Measurement]:
        """Return the resource usage of running containers that have all of the given labels.

        Raises:
            EngineError: The engine does not answer.
        """

    def leftovers(self, labels: Mapping[str, str]) -> list[Leftover]:
        """List the containers, networks and volumes that have all of the given labels.

        Raises:
            EngineError: The engine does not answer.
        """

    def remove(self, leftover: Leftover) -> None:
        """Remove a container, network or volume if it still exists.

        Raises:
            EngineError: The engine refused.
        """

    def close(self) -> None:
        """Close the connections to the engine. The engine must not be used afterwards."""


@runtime_checkable
class CuttingEngine(Protocol):
    """An engine that can take the network of a running container away."""

    def cut_off(self, container_id: str) -> None:
        """Take the network of a running container away for good; only its `localhost` is left.

        Nothing passes over connections that were open, and names are not resolved any more.

        Raises:
            NotRunningError: The container is gone.
            EngineError: The network could not be taken away.
        """


class Engine(ContainerEngine, ImageEngine, Protocol):
    """An engine that both runs containers and builds images."""
