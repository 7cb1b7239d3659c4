"""The data that describe a run and its workers while the run is in progress.

`RunContext` contains the data that all workers of a run share, such as the run's settings and base
commit. `WorkerContext` contains the data of one worker, whose settings and base commit may differ
from the run's. Both classes are immutable.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import BoundedSemaphore, Event

from orchestrator.agents.base import Agent, Session
from orchestrator.base.events import Emit
from orchestrator.base.machine import cpu_count
from orchestrator.base.results import Status
from orchestrator.base.text.redact import Redactor
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.network_access import Access
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.sizing import cpus_of
from orchestrator.engine.interface import labels as label
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import BrokerLink
from orchestrator.engine.places.place import Step
from orchestrator.network.broker.keys import Keys
from orchestrator.network.gateway.allowed_host import BROKER_PORT
from orchestrator.repository.checkouts.lfs import NO_CONTENT, Content
from orchestrator.repository.checkouts.submodules import Submodule
from orchestrator.repository.repository import Repository
from orchestrator.sandbox.deadlines.dead_man_switch import NO_SWITCH, Switch
from orchestrator.sandbox.network.network_log import NetworkLog
from orchestrator.sandbox.network.ports import PortBlocks, WorkerPorts
from orchestrator.sandbox.network.run_network import RunNetwork
from orchestrator.sandbox.sidecars.broker import RunBroker
from orchestrator.sandbox.supervision.cancel import Cancel, WorkerCancel
from orchestrator.sandbox.supervision.pacing.start_throttle import StartThrottle
from orchestrator.sandbox.supervision.pacing.token_bucket import provider_of
from orchestrator.sandbox.supervision.verdict import Verdict
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.turns import CurrentTurn, current_turn
from orchestrator.worker.budget_share import BudgetShare
from orchestrator.worker.checked_run import CheckedRequest, CheckedRun, CheckedSettings
from orchestrator.worker.step_times import StepTimes
from orchestrator.worker.workspace.caches import NO_CACHES, Caches
from orchestrator.worker.workspace.layout import Mode
from orchestrator.worker.workspace.shared_checkout import Checkouts
from orchestrator.worker.workspace.shared_files import Shared


def checkout_slots() -> BoundedSemaphore:
    """Return a semaphore with a slot for each processor.

    Further checkouts at the same time would only delay each other: with slots, the first containers
    start while the next worktrees are written.
    """
    return BoundedSemaphore(max(2, cpu_count()))


class RunOutcome:
    """Whether a run must be resumed later, because Docker or the machine failed. Thread-safe."""

    def __init__(self) -> None:
        self._resumable = Event()

    @property
    def resumable(self) -> bool:
        """Whether a worker's result was not stored, so that only a resumed run can create it."""
        return self._resumable.is_set()

    def leave_resumable(self) -> None:
        """Record that a worker's result could not be stored."""
        self._resumable.set()


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Data and services that all workers of a run share."""

    checked: CheckedRun
    directory: RunDirectory
    base: str
    """The commit that the run starts from."""
    began: datetime
    objects: Path
    """Git object directory with the objects that the base commit reaches."""
    shallow: frozenset[str]
    """Commits in the directory `objects` whose parents are missing."""
    submodules: tuple[Submodule, ...] = ()
    """Submodules of the base commit that are present on this machine."""
    content: Content = NO_CONTENT
    """Git-lfs content of the base commit that is present on this machine."""
    caches: Caches = NO_CACHES
    notices: tuple[str, ...] = ()
    """Messages for the user about the resources that the workers share."""
    mode: Mode
    shared_network: RunNetwork | None = None
    """The network of all containers with network access; None if no container has any."""
    emit: Emit
    cancel: Cancel
    outcome: RunOutcome
    pace: StartThrottle
    ports: PortBlocks
    shared: Shared
    checkout_slots: BoundedSemaphore = field(default_factory=checkout_slots)
    """Limits the number of worktrees whose files are written at the same time."""
    checkouts: Checkouts | None = None
    """The checkouts that workers share; None if each worker has its own worktree from the start."""
    switch: Switch = NO_SWITCH
    """The dead man's switch, which kills containers at their deadlines if this process is gone."""
    broker: RunBroker | None = None
    """The run's credential broker; None if no worker uses one."""
    resumed: bool = False
    """Whether another process started the run and may have left containers and files."""

    @property
    def network(self) -> str:
        """Return the id of the shared network, once it is closed to this machine; else `none`.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
        """
        return "none" if self.shared_network is None else self.shared_network.ready()

    @property
    def request(self) -> CheckedRequest:
        """Return the checked request from which the run was started."""
        return self.checked.request

    @property
    def config(self) -> ParallelConfig:
        """Return the settings of the run."""
        return self.checked.request.settings.config

    @property
    def repository(self) -> Repository:
        """Return the user's git repository."""
        return self.checked.request.repository

    @property
    def redactor(self) -> Redactor:
        """Return the object that removes the values of secrets from texts."""
        return self.checked.request.redactor

    @property
    def engine(self) -> ContainerEngine:
        """Return the container engine."""
        return self.checked.engine

    @property
    def features(self) -> EngineFeatures:
        """Return the features of the engine and of its machine."""
        return self.checked.features

    @property
    def streams(self) -> bool:
        """Return whether files are sent to volumes of the engine; if not, they are mounted."""
        return self.features.transfer == "streams"

    def labels(self, *, role: str) -> dict[str, str]:
        """Return labels for a container or network, by which another process finds it."""
        return run_labels(self.repository, self.directory, role=role)


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """Data of one worker, and of the run that it belongs to."""

    run: RunContext
    spec: WorkerSpec
    settings: CheckedSettings
    """The settings of the worker's task."""
    base: str
    """The commit that the worker starts from. It is not the run's base if the task depends on other
    tasks.
    """
    objects: Path
    """Git object directory with the objects that the worker's base commit reaches."""
    content: Content
    """Git-lfs content of the worker's base commit."""
    directory: Path
    """The worker's state directory."""
    checkpoints: Checkpoints
    cancel: WorkerCancel
    budget: BudgetShare = field(default_factory=BudgetShare)
    """The maximum amounts that this attempt may spend."""
    turn: CurrentTurn | None = None
    """The turn that a message began; None in the first turn."""
    session: Session | None = None
    """The session of the attempt; None: none is kept."""
    resumed: bool = False
    """Whether another process began the attempt and may have left containers and files."""
    times: StepTimes = field(default_factory=StepTimes)
    """Stopwatch for the steps of this attempt."""

    @property
    def config(self) -> ParallelConfig:
        """Return the settings of the worker."""
        return self.settings.config

    @property
    def agent(self) -> Agent:
        """Return the adapter of the worker's agent program."""
        return self.settings.agent

    @property
    def number(self) -> int:
        """Return the worker's number."""
        return self.spec.worker_id

    @property
    def cpus(self) -> float:
        """Return the number of CPUs that the worker may use."""
        return cpus_of(self.config, cpus=self.run.features.cpus)

    @property
    def provider(self) -> str:
        """Return the name of the provider of the worker's model."""
        return provider_of(self.agent.name, self.spec.model, self.run.config.providers)

    @property
    def ports(self) -> WorkerPorts:
        """Return the ports of this machine that are reserved for the worker."""
        return self.run.ports.of(self.number, self.config.isolation.ports)

    @property
    def keys(self) -> Keys | None:
        """Return the API keys that the broker holds for the worker; None without a broker.

        Raises:
            ConfigError: The broker cannot hold the key that the worker needs.
        """
        return self.settings.keys(self.spec.model)

    def broker_link(self, access: Access) -> BrokerLink | None:
        """Return the connection of a container to the credential broker; None without a broker."""
        broker = self.run.broker
        if broker is None or self.config.isolation.keys == "env":
            return None
        taken = {host.port for host in self.settings.egress[access].hosts or ()}
        port = next(port for port in count(BROKER_PORT) if port not in taken)
        return broker.link(self.number, port=port)

    @property
    def ledger(self) -> str:
        """Return the name of the file in which the broker records the spending of this attempt."""
        return f"{self.number}-{len(self.attempts()) + 1}"

    @property
    def network_log(self) -> NetworkLog:
        """Return the log of the connections that the worker makes through its gateways."""
        isolation, networks = self.config.isolation, self.config.networks
        closed = "none" in networks and (isolation.keys == "broker" or isolation.ports)
        return NetworkLog(
            directory=self.directory,
            worker_id=self.number,
            emit=self.run.emit,
            redactor=self.run.redactor,
            lists_all=bool(closed or {"allowlist", "learn"} & networks),
        )

    @property
    def name(self) -> str:
        """Return the prefix of the names of the worker's containers."""
        return label.place_name(self.run.directory.run_id, self.number)

    @property
    def place_name(self) -> str:
        """Return the name of the present attempt's place."""
        run_id, earlier = self.run.directory.run_id, len(self.attempts())
        return label.place_name(run_id, self.number, earlier=earlier)

    def network_of(self, step: Step) -> str:
        """Return the network of a step that has no network of another container.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
        """
        egress = step.spec.egress
        # A place with one network for all steps needs none to reach the broker.
        is_closed = egress is None or (not self.run.features.networks and egress.hosts == ())
        return "none" if is_closed else self.run.network

    def leave_network(self, verdict: Verdict) -> None:
        """Record that the worker needs the run's network no more, if that is certain.

        Args:
            verdict: What is known before the worker's commits are collected.
        """
        config, network = self.config, self.run.shared_network
        may_follow = bool(config.project.checks or config.retry_on)
        # protection: network-stays-while-last-worker-may-need-it
        if network is not None and verdict.status is Status.SUCCESS and not may_follow:
            network.leave(self.number)

    def attempts(self) -> list[tuple[int, Path]]:
        """Return the number and the state directory of each failed attempt."""
        return self.run.directory.attempts(self.number)

    def has_begun(self) -> bool:
        """Return whether the worker has a container to stop, or work that must be kept."""
        given_up = self.checkpoints.attempt_result() is not None
        return self.checkpoints.is_prepared or given_up or bool(self.attempts())

    def labels(self, *, role: str) -> dict[str, str]:
        """Return labels for a container of the worker, by which another process finds it."""
        return {**self.run.labels(role=role), label.WORKER: str(self.number)}


def for_worker(run: RunContext, spec: WorkerSpec) -> WorkerContext:
    """Return a worker's data; its base is the run's unless another base is recorded for it."""
    base = run.directory.base_of(spec.worker_id)
    directory = run.directory.worker(spec.worker_id)
    settings, turn = run.request.settings_of(spec.name), current_turn(run.directory, spec.worker_id)
    if turn is not None:
        given = turn.given
        config = settings.config.model_copy(update=given.settings)
        settings = replace(settings, config=config)
        model = given.model or spec.model
        spec = spec.model_copy(update={"model": model, "message": turn.begun_by.message})
    return WorkerContext(
        run=run,
        spec=spec,
        settings=settings,
        turn=turn,
        base=base or run.base,
        objects=run.directory.objects_of(base) if base else run.objects,
        content=run.content,
        directory=directory,
        checkpoints=Checkpoints(directory),
        cancel=WorkerCancel(run.cancel, run.directory, spec.worker_id),
    )


def run_labels(repository: Repository, directory: RunDirectory, *, role: str) -> dict[str, str]:
    """Return the labels by which another process finds a container or network of a run."""
    return {
        label.MANAGED: "true",
        label.RUN: directory.run_id,
        label.REPOSITORY: str(repository.common_dir),
        label.ROLE: role,
    }
