"""Create and start containers, and record each step so that no task starts twice."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from orchestrator.base.errors import EngineError, OrchestratorError, PortTakenError
from orchestrator.base.events import Stage
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.results import Reason
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.run import Triggers
from orchestrator.engine.interface.protocol import Container, ExitStatus
from orchestrator.engine.places.place import Entry, ForwardingPlace, Place, Start
from orchestrator.sandbox.deadlines.dead_man_switch import LATE, NO_SWITCH, Switch
from orchestrator.sandbox.network.ports import NO_PORTS, WorkerPorts
from orchestrator.sandbox.supervision.watchdog import AllowedPaths
from orchestrator.state.worker.checkpoints import Checkpoints, Launch
from orchestrator.state.worker.endings import Stop

_PORT_ATTEMPTS = 20
_UNWATCHED = "while no process watched it"
_OF_PLACES = {
    "timeout": (Reason.TIMEOUT, f"stopped at its limit of time {_UNWATCHED}"),
    "disk": (Reason.DISK, f"stopped at its limit of disk space {_UNWATCHED}"),
    "inodes": (Reason.INODES, f"stopped at its limit of files {_UNWATCHED}"),
    "pids": (Reason.PIDS, "stopped: the worker kept forking at its limit of processes"),
    "output": (Reason.LOG_LIMIT, f"stopped at its limit of output {_UNWATCHED}"),
}
"""The reasons for which a place stops a step; of these, it alone knows of the processes in pods."""


@dataclass(frozen=True, kw_only=True)
class ContainerLimits:
    """A step of a worker's place, and the time, budget and resource limits of its container."""

    worker_id: int
    place: Place
    step: str
    """Name of the step."""
    timeout: float | None
    limits: Limits
    growing: tuple[str, ...]
    """Names of the parts whose growth counts toward the limit on disk."""
    budget: float | None = None
    tokens: int | None = None
    max_steps: int = sys.maxsize
    ports: WorkerPorts = NO_PORTS
    triggers: Triggers = field(default_factory=Triggers)
    scope: AllowedPaths | None = None
    stage: Stage | None = None
    """Stage whose commands run in the container; None for the task itself."""
    name: str | None = None
    """Name of the check, if the container runs a check."""
    switch: Switch = NO_SWITCH
    """The dead man's switch, which kills the container after its deadline if this process is gone.
    """

    def disk_use(self, *, most_files: int, seconds: float = math.inf) -> DiskUse:
        """Measure the files that the container writes."""
        return self.place.usage(self.growing, most_files=most_files, seconds=seconds)

    def end_on_record(self) -> Entry | None:
        """Return what the place itself recorded of the step's end; None if it recorded nothing."""
        try:
            entries = self.place.journal(0)
        except EngineError:
            return None
        ends = [entry for entry in entries if (entry.step, entry.event) == (self.step, "ended")]
        return ends[-1] if ends else None

    def stopped_by_place(self, status: ExitStatus | None) -> Stop | None:
        """Return the limit at which the place itself stopped the step."""
        if status is None or status.exit_code == 0:
            return None
        end = self.end_on_record()
        found = None if end is None or end.reason is None else _OF_PLACES.get(end.reason)
        return None if found is None else Stop(*found)

    def refresh(self) -> None:
        """Bring files that the container only reads up to date; if this fails, they stay."""
        with suppress(OrchestratorError, OSError):
            self.place.refresh(self.step)

    def before_start(self) -> None:
        """Inform the dead man's switch before the start, so that no container runs unwatched."""
        self.switch.starting(self.worker_id, self._late(0.0))

    def after_start(self, age: float) -> None:
        """Inform the dead man's switch when the container, `age` seconds old, must be dead."""
        # protection: switch-gets-every-deadline
        self.switch.running(self.worker_id, self._late(age))

    def _late(self, age: float) -> float | None:
        """Return the seconds until the dead man's switch kills the container; None: never."""
        if self.timeout is None:
            return None
        return self.timeout - age + self.limits.grace + LATE


@dataclass(frozen=True)
class RunningContainer:
    """A running container that this or another process started."""

    container: Container
    limits: ContainerLimits
    launched: Launch
    """Time of the container's start, and the disk usage of its directories before the start."""
    is_new: bool = True
    """Whether this process has just started the container."""


def launch(
    start: Start,
    terms: ContainerLimits,
    checkpoints: Checkpoints,
    *,
    created: Callable[[], None],
) -> RunningContainer:
    """Create, record and start a container, which no other process starts again after a crash.

    Args:
        start: What the step gets.
        terms: The step, and the limits of its container.
        checkpoints: Records the container.
        created: Called after the creation and before the start, when the ports are known.

    Raises:
        EngineError: The container could not be started, and was removed.
    """
    before = terms.disk_use(most_files=terms.limits.inodes * 2)
    terms.before_start()
    container = create(terms.place, terms.step, start, terms.ports)
    with removed_on_error(container):
        created()
        launched = checkpoints.note_launch(container.id, before=before)
        container.start()
    return RunningContainer(container, terms, launched.starting_now())


def start_again(start: Start, terms: ContainerLimits) -> RunningContainer:
    """Create and start a container whose commands may be repeated; nothing is recorded.

    Raises:
        EngineError: The container could not be started, and was removed.
    """
    before = terms.disk_use(most_files=terms.limits.inodes * 2)
    terms.before_start()
    start = replace(start, env={**terms.ports.variables(), **start.env})
    container = terms.place.order(terms.step, start)
    with removed_on_error(container):
        container.start()
    return RunningContainer(container, terms, Launch.now(container.id, before=before))


@contextmanager
def removed_on_error(container: Container) -> Iterator[None]:
    """Remove a container if the `with` block raises an exception."""
    try:
        yield
    except BaseException:
        # protection: container-that-fails-to-start-is-removed
        container.remove()
        raise


def take_over(
    container: Container, terms: ContainerLimits, checkpoints: Checkpoints
) -> RunningContainer:
    """Continue with a container that another process created; start it if it was not started.

    Raises:
        EngineError: The container could not be started.
    """
    launched = checkpoints.launch()
    if launched is None:
        before = terms.disk_use(most_files=terms.limits.inodes * 2)
        launched = checkpoints.note_launch(container.id, before=before)
        terms.before_start()
    if isinstance(terms.place, ForwardingPlace):
        # The task can do without: its ports cannot change any more.
        with suppress(OrchestratorError):
            terms.place.listen(terms.ports.host_ports())
    container.start()
    return RunningContainer(container, terms, launched, is_new=False)


def create(place: Place, step: str, start: Start, ports: WorkerPorts) -> Container:
    """Create a step's container with a worker's ports; if a port is in use, try other ports.

    Raises:
        EngineError: The container could not be created, and nothing remains of it.
    """
    for _ in range(_PORT_ATTEMPTS):
        variables = ports.variables()
        try:
            return place.order(
                step, replace(start, ports=ports.host_ports(), env={**variables, **start.env})
            )
        except PortTakenError:
            ports.move()
    raise PortTakenError(
        f"the worker's ports cannot be published: {_PORT_ATTEMPTS} times in a row, other programs "
        "took the free ports that were chosen",
        key="port.taken",
    )
