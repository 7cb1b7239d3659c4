"""Create and start containers, and record each step so that no task starts twice."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.config.container import Limits
from orchestrator.config.run import Triggers
from orchestrator.engine.protocol import Container, ContainerEngine
from orchestrator.engine.spec import ContainerSpec
from orchestrator.errors import PortTakenError
from orchestrator.events import Stage
from orchestrator.execution.dead_man_switch import LATE, NO_SWITCH, Switch
from orchestrator.execution.ports import WorkerPorts
from orchestrator.execution.watchdog import AllowedPaths
from orchestrator.files.disk_usage import disk_use
from orchestrator.state.checkpoints import Checkpoints, Launch

_PORT_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True)
class ContainerLimits:
    """Time, budget and resource limits of one container."""

    worker_id: int
    timeout: float | None
    limits: Limits
    writable: tuple[Path, ...]
    """Directories on the host to which the container writes."""
    budget: float | None
    tokens: int | None = None
    max_steps: int
    ports: WorkerPorts
    triggers: Triggers = field(default_factory=Triggers)
    scope: AllowedPaths | None = None
    stage: Stage | None = None
    """Stage whose commands run in the container; None for the task itself."""
    name: str | None = None
    """Name of the check, if the container runs a check."""
    switch: Switch = NO_SWITCH
    """The dead man's switch, which kills the container after its deadline if this process is gone.
    """

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
    engine: ContainerEngine,
    spec: ContainerSpec,
    terms: ContainerLimits,
    checkpoints: Checkpoints,
    *,
    created: Callable[[], None],
) -> RunningContainer:
    """Create, record and start a container, which no other process starts again after a crash.

    Args:
        engine: The engine.
        spec: The container.
        terms: Its time, budget and resource limits.
        checkpoints: Records the container.
        created: Called after the creation and before the start, when the ports are known.

    Raises:
        EngineError: The container could not be started, and was removed.
    """
    before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
    terms.before_start()
    container = create(engine, spec, terms.ports)
    try:
        created()
        launched = checkpoints.note_launch(container.id, before=before)
        container.start()
    except BaseException:
        # protection: container-that-fails-to-start-is-removed
        container.remove()
        raise
    return RunningContainer(container, terms, launched.starting_now())


def start_again(
    engine: ContainerEngine, spec: ContainerSpec, terms: ContainerLimits
) -> RunningContainer:
    """Create and start a container whose commands may be repeated; nothing is recorded.

    Raises:
        EngineError: The container could not be started, and was removed.
    """
    before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
    terms.before_start()
    container = engine.start(replace(spec, env={**terms.ports.variables(), **spec.env}))
    return RunningContainer(container, terms, Launch.now(container.id, before=before))


def take_over(
    container: Container, terms: ContainerLimits, checkpoints: Checkpoints
) -> RunningContainer:
    """Continue with a container that another process created; start it if it was not started.

    Raises:
        EngineError: The container could not be started.
    """
    launched = checkpoints.launch()
    if launched is None:
        before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
        launched = checkpoints.note_launch(container.id, before=before)
        terms.before_start()
    container.start()
    return RunningContainer(container, terms, launched, is_new=False)


def create(engine: ContainerEngine, spec: ContainerSpec, ports: WorkerPorts) -> Container:
    """Create a container with a worker's ports; if a port is in use, try other ports.

    Raises:
        EngineError: The container could not be created, and nothing remains of it.
    """
    for _ in range(_PORT_ATTEMPTS):
        variables = ports.variables()
        try:
            return engine.create(
                replace(spec, ports=ports.host_ports(), env={**variables, **spec.env})
            )
        except PortTakenError:
            ports.move()
    raise PortTakenError(
        f"the worker's ports cannot be published: {_PORT_ATTEMPTS} times in a row, other programs "
        "took the free ports that were chosen"
    )
