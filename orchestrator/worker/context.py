"""Contexts of a run and of its workers, and the labels of their objects in the engine.

`RunContext` contains what all workers of a run share: `run.config` and `run.base` are those of the
run. `WorkerContext` contains what differs: `worker.config` and `worker.base`. Both are immutable.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from orchestrator.agents.base import Agent
from orchestrator.broker.keys import Keys
from orchestrator.config.run import ParallelConfig
from orchestrator.config.sizing import cpus_of
from orchestrator.engine import labels as label
from orchestrator.engine.protocol import ContainerEngine, EngineFeatures
from orchestrator.engine.spec import BrokerLink
from orchestrator.events import Emit
from orchestrator.execution.broker import RunBroker
from orchestrator.execution.cancel import Cancel, WorkerCancel
from orchestrator.execution.dead_man_switch import NO_SWITCH, Switch
from orchestrator.execution.network_log import NetworkLog
from orchestrator.execution.ports import PortBlocks, WorkerPorts
from orchestrator.execution.run_outcome import RunOutcome
from orchestrator.execution.start_throttle import StartThrottle
from orchestrator.execution.token_bucket import provider_of
from orchestrator.gateway.allowed_host import BROKER_PORT
from orchestrator.git.lfs import NO_CONTENT, Content
from orchestrator.git.repository import Repository
from orchestrator.git.submodules import Submodule
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.state.run_directory import RunDirectory
from orchestrator.text.redact import Redactor
from orchestrator.worker.budget_share import BudgetShare
from orchestrator.worker.checked_run import CheckedRequest, CheckedRun, CheckedSettings
from orchestrator.worker.labels import run_labels
from orchestrator.worker.step_times import StepTimes
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.caches import NO_CACHES, Caches
from orchestrator.workspace.layout import Mode
from orchestrator.workspace.shared_checkout import Checkouts
from orchestrator.workspace.shared_files import Shared


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Data and services that all workers of a run share."""

    checked: CheckedRun
    directory: RunDirectory
    base: str
    """The commit that the run starts from."""
    began: datetime
    objects: Path
    """Object directory with the objects that the base reaches."""
    shallow: frozenset[str]
    """Commits of `objects` whose parents are missing."""
    submodules: tuple[Submodule, ...] = ()
    """The submodules of the base that are on this machine."""
    content: Content = NO_CONTENT
    """The git-lfs content of the base that is on this machine."""
    caches: Caches = NO_CACHES
    notices: tuple[str, ...] = ()
    """Messages for the user about the shared resources."""
    mode: Mode
    network: str
    """Id of the network of containers that have one; `none` if no container has a network."""
    emit: Emit
    cancel: Cancel
    outcome: RunOutcome
    pace: StartThrottle
    ports: PortBlocks
    shared: Shared
    checkouts: Checkouts | None = None
    """The checkouts that workers share; None if each has a worktree from the start."""
    switch: Switch = NO_SWITCH
    """Kills containers at their deadline if this process is gone."""
    broker: RunBroker | None = None
    """The run's credential broker; None if no worker uses one."""
    resumed: bool = False
    """Whether another process started the run, and may have left containers and files."""

    @property
    def request(self) -> CheckedRequest:
        """The checked request of the run."""
        return self.checked.request

    @property
    def config(self) -> ParallelConfig:
        """The configuration of the run."""
        return self.checked.request.settings.config

    @property
    def repository(self) -> Repository:
        """The user's repository."""
        return self.checked.request.repository

    @property
    def redactor(self) -> Redactor:
        """Removes the values of secrets from text."""
        return self.checked.request.redactor

    @property
    def engine(self) -> ContainerEngine:
        """The container engine."""
        return self.checked.engine

    @property
    def features(self) -> EngineFeatures:
        """The features of the engine and its machine."""
        return self.checked.features

    def labels(self, *, role: str) -> dict[str, str]:
        """Return the labels of an engine object, enough for another process to take it over."""
        return run_labels(self.repository, self.directory, role=role)


@dataclass(frozen=True, kw_only=True)
class WorkerContext:
    """Data of one worker."""

    run: RunContext
    spec: WorkerSpec
    settings: CheckedSettings
    """The settings of the worker's task."""
    base: str
    """The commit that the worker starts from; differs from the run's if its task depends on others.
    """
    objects: Path
    """Object directory with the objects that the worker's base reaches."""
    content: Content
    """The git-lfs content of the worker's base."""
    directory: Path
    """The worker's state directory."""
    checkpoints: Checkpoints
    cancel: WorkerCancel
    budget: BudgetShare = field(default_factory=BudgetShare)
    """Budget of this attempt."""
    times: StepTimes = field(default_factory=StepTimes)
    """Measures the steps of this attempt."""

    @property
    def config(self) -> ParallelConfig:
        """The configuration of the worker."""
        return self.settings.config

    @property
    def agent(self) -> Agent:
        """The agent program of the worker."""
        return self.settings.agent

    @property
    def number(self) -> int:
        """The worker's number."""
        return self.spec.worker_id

    @property
    def cpus(self) -> float:
        """Number of CPUs of the worker."""
        return cpus_of(self.config, cpus=self.run.features.cpus)

    @property
    def provider(self) -> str:
        """The name of the provider whose models the worker uses."""
        return provider_of(self.agent.name, self.spec.model, self.run.config.providers)

    @property
    def ports(self) -> WorkerPorts:
        """The ports of the worker on the host."""
        return self.run.ports.of(self.number, self.config.isolation.ports)

    @property
    def keys(self) -> Keys | None:
        """The keys that the broker holds for the worker; None if the worker gets its keys itself.

        Raises:
            ConfigError: The broker cannot hold the key that the worker needs.
        """
        return self.settings.keys(self.spec.model)

    @property
    def broker_link(self) -> BrokerLink | None:
        """The place of the worker in the broker's network; None without a broker."""
        broker, task = self.run.broker, self.settings.access.task
        if broker is None or self.config.isolation.keys == "env":
            return None
        taken = {host.port for host in self.settings.egress[task].hosts or ()}
        port = next(port for port in count(BROKER_PORT) if port not in taken)
        return broker.link(self.number, port=port)

    @property
    def ledger(self) -> str:
        """The name of the broker's ledger of this attempt."""
        return f"{self.number}-{len(self.attempts()) + 1}"

    @property
    def network_log(self) -> NetworkLog:
        """The log of the worker's connections through its gateways."""
        return NetworkLog(
            directory=self.directory,
            worker_id=self.number,
            emit=self.run.emit,
            redactor=self.run.redactor,
        )

    @property
    def branch_ref(self) -> str:
        """The full name of the worker's branch."""
        return f"refs/heads/{self.spec.branch}"

    @property
    def name(self) -> str:
        """Prefix of the names of the worker's containers."""
        return f"orchestrator-{self.run.directory.run_id}-{self.number}"

    def attempts(self) -> list[tuple[int, Path]]:
        """Return the number and the state directory of each failed attempt."""
        return self.run.directory.attempts(self.number)

    def has_begun(self) -> bool:
        """Return whether the worker has a container to stop, or work to harvest or keep."""
        given_up = self.checkpoints.given_up() is not None
        return self.checkpoints.prepared or given_up or bool(self.attempts())

    def labels(self, *, role: str) -> dict[str, str]:
        """Return the labels of an engine object, enough for another process to take it over."""
        found = {**self.run.labels(role=role), label.WORKER: str(self.number)}
        if self.config.timeout is not None and role == "worker":
            deadline = datetime.now(UTC) + timedelta(seconds=self.config.timeout)
            found[label.DEADLINE] = deadline.isoformat(timespec="seconds")
        return found


def for_worker(run: RunContext, spec: WorkerSpec) -> WorkerContext:
    """Return the context of a worker, with its own base if that is already known."""
    base = run.directory.base_of(spec.worker_id)
    directory = run.directory.worker(spec.worker_id)
    return WorkerContext(
        run=run,
        spec=spec,
        settings=run.request.settings_of(spec.name),
        base=base or run.base,
        objects=run.directory.objects_of(base) if base else run.objects,
        content=run.content,
        directory=directory,
        checkpoints=Checkpoints(directory),
        cancel=WorkerCancel(run.cancel, run.directory, spec.worker_id),
    )
