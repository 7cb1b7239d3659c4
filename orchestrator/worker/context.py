"""What the parts of one run share, and how its objects in the engine are labelled."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.agents.base import Agent
from orchestrator.config.run import ParallelConfig
from orchestrator.config.sizing import cpus_of
from orchestrator.engine import labels as label
from orchestrator.engine.protocol import ContainerEngine, EngineFeatures
from orchestrator.engine.spec import Egress
from orchestrator.events import Emit
from orchestrator.execution.cancel import Cancel
from orchestrator.execution.dead_man_switch import NO_SWITCH, Switch
from orchestrator.execution.ports import PortBlocks
from orchestrator.execution.start_throttle import StartThrottle
from orchestrator.execution.token_bucket import provider_of
from orchestrator.git.lfs import NO_CONTENT, Content
from orchestrator.git.repository import Repository
from orchestrator.git.submodules import Submodule
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.secret_files import Secrets
from orchestrator.text.redact import Redactor
from orchestrator.worker.checked_run import CheckedRun, CheckedSettings
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Workflow
from orchestrator.workflow.planning import Programs
from orchestrator.workspace.caches import NO_CACHES, Caches
from orchestrator.workspace.mounts import Mode
from orchestrator.workspace.shared_files import Shared
from orchestrator.workspace.untracked import Copies


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What all workers of a run share."""

    checked: CheckedRun
    settings: CheckedSettings
    directory: RunDirectory
    base: str
    """The commit that a worker starts from."""
    run_base: str
    """The commit that those start from which go on from no other's work."""
    began: datetime
    objects: Path
    """What the base reaches."""
    shallow: frozenset[str]
    """Commits that are cut off from their parents."""
    submodules: tuple[Submodule, ...] = ()
    """Those of the base that are on this machine."""
    content: Content = NO_CONTENT
    """What it has of git-lfs."""
    caches: Caches = NO_CACHES
    notices: tuple[str, ...] = ()
    """What people are to know of what was made for all workers."""
    mode: Mode
    network: str
    """Of the containers that have one: what `create_network` gave; `none` where none has."""
    emit: Emit
    cancel: Cancel
    pace: StartThrottle
    ports: PortBlocks
    shared: Shared
    switch: Switch = NO_SWITCH
    """Ends containers at their deadline although we are gone."""
    resumed: bool = False
    """Whether another process began it: what it left is looked for first."""

    @property
    def engine(self) -> ContainerEngine:
        """The container engine."""
        return self.checked.engine

    @property
    def features(self) -> EngineFeatures:
        """What the engine and its machine can do."""
        return self.checked.features

    @property
    def repository(self) -> Repository:
        """The user's repository."""
        return self.checked.request.repository

    @property
    def redactor(self) -> Redactor:
        """What removes the values of secrets from text."""
        return self.checked.request.redactor

    @property
    def secrets(self) -> Secrets:
        """The secrets that workers find in files."""
        return self.checked.request.secrets

    @property
    def workflow(self) -> Workflow | None:
        """The workflow whose tasks the workers have."""
        return self.checked.request.workflow

    @property
    def programs(self) -> Programs:
        """The settings for tasks with an agent program of their own."""
        return self.checked.request.programs

    @property
    def copies(self) -> Copies:
        """The untracked files that every worker gets."""
        return self.checked.request.copies

    @property
    def config(self) -> ParallelConfig:
        return self.settings.config

    @property
    def agent(self) -> Agent:
        return self.settings.agent

    @property
    def image(self) -> str:
        return self.settings.image

    @property
    def egress(self) -> Egress | None:
        return self.settings.egress

    @property
    def inherited_env(self) -> Mapping[str, str]:
        return self.settings.inherited_env

    @property
    def cpus(self) -> float:
        return cpus_of(self.config, cpus=self.features.cpus)


def of_worker(run: RunContext, spec: WorkerSpec) -> RunContext:
    """Return a run as one worker is to have it: with the wishes of its task."""
    return replace(run, settings=run.checked.request.settings_of(spec.name))


def with_config(run: RunContext, config: ParallelConfig) -> RunContext:
    """Return a run with another configuration."""
    return replace(run, settings=replace(run.settings, config=config))


def provider_for(run: RunContext, spec: WorkerSpec) -> str:
    """Name the provider that a worker uses."""
    return provider_of(of_worker(run, spec).agent.name, spec.model, run.config.providers)


def labels(run: RunContext, spec: WorkerSpec | None, *, role: str) -> dict[str, str]:
    """Say whose an object of the engine is: enough for another process to take over."""
    found = {
        label.MANAGED: "true",
        label.RUN: run.directory.run_id,
        label.REPOSITORY: str(run.repository.common_dir),
        label.ROLE: role,
    }
    if spec is not None:
        found[label.WORKER] = str(spec.worker_id)
    if run.config.timeout is not None and role == "worker":
        deadline = datetime.now(UTC) + timedelta(seconds=run.config.timeout)
        found[label.DEADLINE] = deadline.isoformat(timespec="seconds")
    return found
