"""The place of one attempt: files go in, steps run there, and one harvest comes out.

All engines have this unit in common. A `Place` is described as a whole before its first step
starts, because some engines can add nothing later. This module is the contract; `HostPlace` fulfils
it where containers can mount files of this machine.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.interface.spec import BindMount, ContainerSpec, OverlayMount

TREE = "tree"
"""Name of the part with a worker's worktree; `tree/src` is its directory `src`."""
GIT = "git"
"""Name of the part with a worker's own git directory."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Files of this machine, as some of a place's steps see them.

    Parts of the same name are the same files, which other steps see read-only or in another way:
    what one step writes, the next one reads. A part `NAME/PATH` is the directory `PATH` of `NAME`.
    """

    name: str
    mount: BindMount | OverlayMount
    """Where the files are on this machine and in the place, and whether the steps may write.

    Only an engine that mounts files of this machine gets an `OverlayMount`. Any other place
    contains a copy of the file or directory `source`, with its modes and owners, at `target`.
    """
    seen_by: frozenset[str]
    """Names of the steps that see the part. No other step can read it."""
    in_memory: bool = False
    """Whether the files may never be on a disk of the engine. They exist only while a step that
    sees the part runs, so a place that copies files reads them when such a step is ordered, and
    when it is asked to `refresh` them. Steps only read them.
    """
    digest: str | None = None
    """Equal digests are equal files, which an engine needs only once; None: not known."""


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """Limits of a step that the place itself enforces if the client may lose its connection."""

    timeout: float | None = None
    """Seconds from the step's start until SIGTERM; None: no limit."""
    grace: float = 0.0
    """Seconds between SIGTERM and SIGKILL."""
    disk: int | None = None
    """Bytes that the step may write to the parts `limited`; None: no limit."""
    inodes: int | None = None
    limited: tuple[str, ...] = ()
    """Names of the parts whose growth is limited."""
    output: int | None = None
    """Bytes of output, stdout and stderr together; None: no limit."""
    serves: bool = False
    """Whether the step only serves others: it is not stopped because of its output, of which the
    rest is discarded, and the place does not wait for its end.
    """


@dataclass(frozen=True, kw_only=True)
class Step:
    """A container of a place, described before the place is opened, and started by an order."""

    name: str
    spec: ContainerSpec
    """The container without what comes with the order, and without the mounts of parts."""
    limits: StepLimits = StepLimits()
    after: str | None = None
    """A step at whose end this one starts without an order if the client is gone; None: no step."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a step gets when it is ordered, since it was not known or is secret before."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels in addition to those of the step."""
    network: str = "none"
    """`none`, or the id of a network that `create_network` returned."""
    network_of: str | None = None
    """Id of a running container whose network the step uses."""
    ports: Mapping[int, int] = field(default_factory=dict)
    """Ports to publish: the port in the container, and the port on 127.0.0.1 that leads there."""


@dataclass(frozen=True, kw_only=True)
class PlaceSpec:
    """Everything about a place that is known before its first step starts."""

    name: str
    """Prefix of the names of all objects that the engine creates for the place."""
    labels: Mapping[str, str]
    """Labels by which another process finds the place."""
    parts: tuple[Part, ...]
    steps: tuple[Step, ...]
    start_within: float = 900.0
    """Seconds after which a place without an order ends itself."""
    collect_within: float = 3600.0
    """Seconds that a place waits for its client after the last step, before it ends itself."""

    def step(self, name: str) -> Step:
        """Return the step with a name."""
        return next(step for step in self.steps if step.name == name)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What happened in a place, as the place itself recorded it while no client was connected."""

    number: int
    """Number of the entry; the first one has the number 1."""
    age: float
    """Seconds since the place was opened, by the place's own monotonic clock."""
    step: str
    event: Literal["started", "stopping", "ended"]
    reason: str | None = None
    """Why the step was stopped: `timeout`, `disk`, `inodes`, `pids` or `output`; None: it was not.
    """
    exit_code: int | None = None
    """Exit code of the step; None if it has not ended, or if its end was not observed."""
    at: float | None = None
    """When it happened, in seconds since the epoch by the clock of the place's machine; None: the
    place does not say. It is compared with other times of that machine only.
    """


@dataclass(frozen=True, kw_only=True)
class Waiter:
    """Whoever waits for a place that finds no room yet."""

    has_left: Callable[[], bool] = lambda: False
    """Returns whether the place is not needed any more."""
    tell: Callable[[str], None] = lambda _: None
    """Called with the reason of the wait, whenever that changes."""
    waits_for_room: bool = True
    """Whether a lack of room is worth a long wait."""


class Place(Protocol):
    """The place of one attempt. Another process can open it again by the same specification."""

    @property
    def spec(self) -> PlaceSpec:
        """The specification by which the place was opened."""

    def put(self, parts: Sequence[Part]) -> None:
        """Bring the files of the place up to date before the next step.

        Args:
            parts: All parts of the specification. What they contain and where they are on this
                machine may have changed; which steps see them has not.

        Repeating the call after an interruption leaves the same files. Files that steps wrote to a
        part are kept.

        Raises:
            EngineError: The files could not be transferred.
            OSError: A file of this machine cannot be read.
        """

    def refresh(self, step: str) -> None:
        """Bring the parts in memory that a running step sees up to date.

        Every file is replaced as a whole, and files that are gone here are removed.

        Raises:
            EngineError: The files could not be transferred.
            OSError: A file of this machine cannot be read.
        """

    def order(self, step: str, start: Start) -> Container:
        """Create the container of a step; nothing of the step runs before the container's `start`.

        The container sees the parts of its step and nothing else of the place. A step can be
        ordered again once its container was removed; until then a second order is an error, so of
        two processes that order the same step, one gets the container.

        Raises:
            PortTakenError: A host port of `start.ports` is in use.
            EngineError: The container could not be created; nothing is left behind.
        """

    def step(self, name: str) -> Container | None:
        """Return the container of a step that another process ordered; None if there is none.

        Raises:
            EngineError: The engine does not answer.
        """

    def usage(
        self, parts: Collection[str], *, most_files: int, seconds: float = math.inf
    ) -> DiskUse:
        """Measure the files that steps can write in some parts, while they may be writing.

        A place that measures without a request may return its latest measurement.

        Args:
            parts: Names of the parts.
            most_files: Number of files above which counting stops.
            seconds: Time after which counting stops.

        Raises:
            EngineError: The engine does not answer.
        """

    def changed(self, part: str, *, most: int, seconds: float) -> Iterator[str]:
        """Yield paths of files in a part that steps have created or changed, in any order.

        Args:
            part: Name of the part.
            most: Number of files and directories after which the search ends.
            seconds: Time after which the search ends.

        Raises:
            EngineError: The engine does not answer.
        """

    def journal(self, after: int) -> list[Entry]:
        """Return what the place recorded since an entry; 0 for everything.

        Raises:
            EngineError: The engine does not answer.
        """

    def take(self, part: str, into: Path, *, limit: int, partial: bool = False) -> int:
        """Make what the steps wrote in a part available in a directory of this machine.

        The content is hostile: only regular files and directories are written, and no link is
        followed. An interrupted call is repeated, with the same result. Files are complete and
        unaltered, or the call fails.

        Args:
            part: Name of the part.
            into: The directory.
            limit: Maximum size of the files in bytes.
            partial: Whether files that exceed a limit are left out, in place of an error.

        Returns:
            The number of files that were left out, because they are not regular or do not fit.

        Raises:
            EngineError: The files could not be transferred.
            OSError: The disk is full.
        """

    def release(self) -> None:
        """Remove the place, because everything in it was collected and recorded on this machine.

        Raises:
            EngineError: The engine does not answer.
        """

    def remove(self) -> None:
        """End all steps and remove the place with its files. Repeating the call is safe.

        Raises:
            EngineError: The engine does not answer.
        """


@runtime_checkable
class AddressedPlace(Protocol):
    """A place with an address of its own, by which other places of the engine know it."""

    def address(self) -> str:
        """Return the IP address of the place, which no other place has until this one is removed.

        Raises:
            EngineError: The place is gone, or the engine does not answer.
        """


@runtime_checkable
class ForwardingPlace(Protocol):
    """A place whose ports are reached by way of the process that opened it."""

    def listen(self, ports: Mapping[int, int]) -> None:
        """Let ports of 127.0.0.1 lead into the place, unless they do already.

        Args:
            ports: The port in the place, and the port here.

        Raises:
            PortTakenError: A port is in use.
            EngineError: The engine does not carry connections.
        """


@runtime_checkable
class RemoteEngine(Protocol):
    """An engine that may be on another machine, whose addresses and name servers then matter."""

    @property
    def is_here(self) -> bool:
        """Return whether the engine is on this machine, as far as this is known."""

    def note_other_machine(self) -> None:
        """Note that the engine may be on another machine: it does not see this one's files."""

    def resolve(self, name: str) -> list[str]:
        """Return the IPv4 addresses of a name, as the engine's machine resolves it.

        Raises:
            EngineError: The engine does not answer.
            ValueError: The name has no address there.
        """


@runtime_checkable
class PlaceEngine(Protocol):
    """An engine that has places of its own, which mount no file of this machine."""

    def open_place(self, spec: PlaceSpec, *, waiter: Waiter | None = None) -> Place:
        """Create a place, or open it again if it exists; its files have still to be `put`.

        Args:
            spec: The place.
            waiter: Told why `put` waits for room. Once it has left, `put` raises
                `StartCancelledError`.

        Raises:
            UnsupportedError: The place needs something that these places do not have.
            EngineError: The place could not be created.
        """


@runtime_checkable
class ClusterEngine(Protocol):
    """An engine whose places are pods, with settings of their own."""

    def configure(self, settings: PodSettings) -> None:
        """Use the user's settings for the pods that are created from now on."""


def is_shared(engine: object) -> bool:
    """Return whether other machines may use an engine, as far as this is known.

    Their repositories may be at the same paths as those of this machine.
    """
    if isinstance(engine, ClusterEngine):
        return True
    return isinstance(engine, RemoteEngine) and not engine.is_here


@runtime_checkable
class NetworkProver(Protocol):
    """An engine whose containers have a network unless something else takes it away."""

    def prove_network(self, repository: str, networks: Collection[str]) -> str:
        """Find out whether the networks of places are closed, before there are any places.

        If so, every place that is opened later proves it again before its first step.

        Args:
            repository: The repository's git common directory, for labels.
            networks: The networks that places will have: `none`, `open`.

        Returns:
            What a container reached that its network closes; empty if it reached nothing.

        Raises:
            EngineError: It cannot be found out.
        """
