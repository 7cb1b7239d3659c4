"""Create and start containers, with checkpoints so that no task starts twice."""

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
    """Directories on the host that the container writes to."""
    budget: float | None
    tokens: int | None = None
    max_steps: int
    ports: WorkerPorts
    triggers: Triggers = field(default_factory=Triggers)
    scope: AllowedPaths | None = None
    stage: Stage | None = None
    """Stage that the container belongs to; None for the task itself."""
    name: str | None = None
    """Name of the check, when the container runs a check."""
    switch: Switch = NO_SWITCH
    """Kills the container after its deadline if this process is gone."""

    def before_start(self) -> None:
        """Inform the switch before the container starts, so that it is never unwatched."""
        self.switch.starting(self.worker_id, self._late(0.0))

    def started(self, age: float) -> None:
        """Inform the switch of the deadline of a container that started `age` seconds ago."""
        self.switch.running(self.worker_id, self._late(age))

    def _late(self, age: float) -> float | None:
        """Return the seconds until the container must be dead, even without this process."""
        if self.timeout is None:
            return None
        return self.timeout - age + self.limits.grace + LATE


@dataclass(frozen=True)
class RunningContainer:
    """A container that was started, by this or another process."""

    container: Container
    limits: ContainerLimits
    launched: Launch
    """Time of the container's start, and its disk use before the start."""


def launch(
    engine: ContainerEngine,
    spec: ContainerSpec,
    terms: ContainerLimits,
    checkpoints: Checkpoints,
    *,
    created: Callable[[], None],
) -> RunningContainer:
    """Create a container, record it, start it: after a crash it is never started twice.

    Args:
        engine: The engine.
        spec: The container.
        terms: Its time, budget and resource limits.
        checkpoints: Records the container.
        created: Called when the ports are certain, before the start.

    Raises:
        EngineError: The container could not be started; nothing of it is left.
    """
    before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
    terms.before_start()
    container = create(engine, spec, terms.ports)
    try:
        created()
        launched = checkpoints.note_launch(container.id, before=before)
        container.start()
    except BaseException:
        container.remove()
        raise
    return RunningContainer(container, terms, launched.starting_now())


def start_again(
    engine: ContainerEngine, spec: ContainerSpec, terms: ContainerLimits
) -> RunningContainer:
    """Create and start a container that is safe to start again; nothing is recorded.

    Raises:
        EngineError: The container could not be started; nothing of it is left.
    """
    before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
    terms.before_start()
    container = engine.start(replace(spec, env={**terms.ports.variables(), **spec.env}))
    return RunningContainer(container, terms, Launch.now(container.id, before=before))


def take_over(
    container: Container, terms: ContainerLimits, checkpoints: Checkpoints
) -> RunningContainer:
    """Continue with a container that another process created; start it if necessary.

    Raises:
        EngineError: The container could not be started.
    """
    launched = checkpoints.launch()
    if launched is None:
        before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
        launched = checkpoints.note_launch(container.id, before=before)
        terms.before_start()
    container.start()
    return RunningContainer(container, terms, launched)


def create(engine: ContainerEngine, spec: ContainerSpec, ports: WorkerPorts) -> Container:
    """Create a container with the worker's ports, choosing other ports if one is in use.

    Raises:
        EngineError: The container could not be created; nothing of it is left.
    """
    for _ in range(_PORT_ATTEMPTS):
        variables = ports.variables()
        try:
            return engine.create(
                replace(spec, ports=ports.published(), env={**variables, **spec.env})
            )
        except PortTakenError:
            ports.move()
    raise PortTakenError(f"the chosen ports were in use, {_PORT_ATTEMPTS} times in a row")
