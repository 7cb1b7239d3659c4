"""Create and start a container, recorded so that no task starts twice."""

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
    """How long and how much a container may."""

    worker_id: int
    timeout: float | None
    limits: Limits
    writable: tuple[Path, ...]
    """Directories on the host that grow as it writes."""
    budget: float | None
    tokens: int | None = None
    max_steps: int
    ports: WorkerPorts
    triggers: Triggers = field(default_factory=Triggers)
    scope: AllowedPaths | None = None
    stage: Stage | None = None
    """None is the task itself."""
    name: str | None = None
    """Which check it is."""
    switch: Switch = NO_SWITCH
    """Ends it at its deadline although we are gone."""

    def before_start(self) -> None:
        """Tell the switch before there is a container: from its start on nobody may be left."""
        self.switch.starting(self.worker_id, self._late(0.0))

    def started(self, age: float) -> None:
        """Tell the switch the deadline of what was started so many seconds ago."""
        self.switch.running(self.worker_id, self._late(age))

    def _late(self, age: float) -> float | None:
        """Return the seconds after which it must be dead, whatever becomes of us."""
        if self.timeout is None:
            return None
        return self.timeout - age + self.limits.grace + LATE


def launch(
    engine: ContainerEngine,
    spec: ContainerSpec,
    terms: ContainerLimits,
    checkpoints: Checkpoints,
    *,
    created: Callable[[], None],
) -> tuple[Container, Launch]:
    """Create a container, note it, start it: whoever takes over starts nothing twice.

    Args:
        engine: The engine.
        spec: The container.
        terms: How long and how much it may.
        checkpoints: Where it is noted.
        created: What is to be done as soon as its ports are certain, and before it starts.

    Raises:
        EngineError: It could not be started; nothing of it is left.
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
    return container, launched.starting_now()


def start_again(
    engine: ContainerEngine, spec: ContainerSpec, terms: ContainerLimits
) -> tuple[Container, Launch]:
    """Start a container that may as well be started over again: nothing is noted of it.

    Raises:
        EngineError: It could not be started; nothing of it is left.
    """
    before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
    terms.before_start()
    container = engine.start(replace(spec, env={**terms.ports.variables(), **spec.env}))
    return container, Launch.now(container.id, before=before)


def take_over(container: Container, terms: ContainerLimits, checkpoints: Checkpoints) -> Launch:
    """Go on with a container that another process created: start it, if that was not done.

    Raises:
        EngineError: It could not be started.
    """
    launched = checkpoints.launch()
    if launched is None:
        before = disk_use(terms.writable, most_files=terms.limits.inodes * 2)
        launched = checkpoints.note_launch(container.id, before=before)
        terms.before_start()
    container.start()
    return launched


def create(engine: ContainerEngine, spec: ContainerSpec, ports: WorkerPorts) -> Container:
    """Create a container with a worker's ports, and others where one of them is taken.

    Raises:
        EngineError: It could not be created; nothing of it is left.
    """
    for _ in range(_PORT_ATTEMPTS):
        variables = ports.variables()
        try:
            return engine.create(
                replace(spec, ports=ports.published(), env={**variables, **spec.env})
            )
        except PortTakenError:
            ports.move()
    raise PortTakenError(f"ports were taken by others {_PORT_ATTEMPTS} times over")
