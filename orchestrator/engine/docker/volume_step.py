"""A step of a place with volumes: a container whose output the porter keeps."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

import docker

from orchestrator.base.errors import EngineError, UnsupportedError
from orchestrator.base.events import Stream
from orchestrator.base.threads import meanwhile
from orchestrator.engine.docker.container import DockerContainer, patient
from orchestrator.engine.docker.networks import Made, Make
from orchestrator.engine.docker.porter_calls import Porter
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.engine.places.part_files import source_of
from orchestrator.engine.places.place import PlaceSpec, Step

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
_NOTICE = 10.0
"""Maximum number of seconds that the porter takes to notice the end of a container."""
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class Networks(Protocol):
    """Gives containers their networks, with packet filters."""

    def create_with(self, spec: ContainerSpec, make: Make[Made]) -> Made:
        """Create a container by a function, in the network that it needs."""

    def adopt(self, container_id: str) -> DockerContainer | None:
        """Return a handle of a container, which knows its network; None if it does not exist."""


class VolumeStep(DockerContainer):
    """Implements `engine.interface.protocol.Container` for a step that has been ordered."""

    def __init__(
        self,
        client: docker.APIClient,
        container_id: str,
        porter: Porter,
        step: str,
        *,
        is_new: bool = False,
    ) -> None:
        super().__init__(client, container_id, ports={}, adopted=True)
        self._is_new = is_new
        self._porter, self._step = porter, step
        self.then: Callable[[], None] | None = None
        """Called while the container starts: lets the following steps wait in their containers."""

    def start(self) -> None:
        """Start the container, unless it was started before; the porter lets the command begin."""
        if not self._is_new and self._porter.state(self._step) == "waiting":
            raise EngineError(
                "the step was not ordered completely; remove it, and order again",
                key="place.step-incomplete",
            )
        if self.then is None:
            super().start()
        else:
            with meanwhile(self.then):
                super().start()

    @patient
    def again(self) -> "VolumeStep | None":  # type: ignore[override]  # the same, decorated
        """Return a new handle for the step after lost contact, None if it no longer exists."""
        again = find_step(self._client, self._id, self._porter, self._step)
        if again is not None:
            again.share_network(self)
        return again

    def share_network(self, other: DockerContainer | None) -> None:
        """Take what another handle of the same container knows of its network."""
        if other is not None:
            self.guard, self.shares_guard = other.guard, other.shares_guard
            self.filter, self.ports = other.filter, other.ports
            self._network_over = other._network_over

    def logs(self, since: Mapping[Stream, int] | None = None) -> Iterator[LogChunk]:
        """Yield all output from the given offsets on, until the step ends.

        Unread output blocks nothing, and a cut connection loses and repeats nothing.
        """
        offsets = {f"{self._step}.{stream}": (since or {}).get(stream, 0) for stream in _STREAMS}
        for name, data in self._porter.read(offsets):
            yield LogChunk(stream="stderr" if name.endswith(".stderr") else "stdout", data=data)

    def kill(  # type: ignore[override]  # the same, decorated
        self, signal: Literal["SIGTERM", "SIGKILL"]
    ) -> None:
        """Send SIGTERM to all processes of the step, or kill them."""
        if signal == "SIGKILL":
            # Not by the porter: this works even if the porter has died.
            super().kill(signal)
        elif self.state().ended_at is None:
            self._porter.call("stop", self._step, signal)

    def remove(self) -> None:
        """Kill and remove the container, so that the step can be ordered again."""
        super().remove()
        deadline, run = time.monotonic() + _NOTICE, 0
        while True:
            try:
                run = run or self._porter.run(self._step)
                self._porter.call("forget", self._step, str(run))
            except EngineError:
                # A place that has ended forgets nothing, and needs not.
                if not self._porter.runs() or time.monotonic() >= deadline:
                    return
                time.sleep(0.1)
            else:
                return


def find_step(
    client: docker.APIClient, container: str, porter: Porter, step: str
) -> VolumeStep | None:
    """Return the step in a container, by the container's name or id; None if it does not exist."""
    found = porter.inspect(container)
    return None if found is None else VolumeStep(client, found["Id"], porter, step)


def check_place(spec: PlaceSpec) -> None:
    """Check that a place needs nothing that places with volumes do not have.

    Raises:
        UnsupportedError: It does.
    """
    for part in spec.parts:
        source_of(part)
        if not _NAME.fullmatch(part.name):
            raise UnsupportedError(
                f"a place with volumes has no part `{part.name}`", key="place.part-unknown"
            )
    for step in spec.steps:
        user, _, _ = step.spec.user.partition(":")
        # Root could hold the step's channel open, as the porter's user.
        # protection: steps-in-volumes-never-run-as-root
        if (not user.isdecimal() or int(user) == 0) and not _is_a_service(spec, step):
            raise UnsupportedError(
                "a step of a place with volumes needs a user other than root", key="place.root-step"
            )
        if not _NAME.fullmatch(step.name):
            raise UnsupportedError(
                f"a place with volumes has no step `{step.name}`", key="place.step-unknown"
            )


def _is_a_service(spec: PlaceSpec, step: Step) -> bool:
    """Return whether a step has nothing to do with the worker's files, and no deadline to keep."""
    sees, limits = any(step.name in part.seen_by for part in spec.parts), step.limits
    return (
        limits.serves and not sees and (limits.timeout, limits.disk, limits.inodes) == (None,) * 3
    )
