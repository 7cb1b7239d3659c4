"""The seam to a container engine: what it is told, what it gives back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from orchestrator.engine.image_protocol import ImageEngine
from orchestrator.engine.spec import ContainerSpec, Egress
from orchestrator.events import Stream


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
        """Return how far it has come.

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
        """Return its exit code, once its output was read to the end.

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
        """Return the TCP ports that an image says it listens on, the lowest first.

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


class Engine(ContainerEngine, ImageEngine, Protocol):
    """Both halves."""
