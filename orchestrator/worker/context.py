"""What the parts of one run share, and how its objects in the engine are labelled."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.agents.base import Agent
from orchestrator.config.run import ParallelConfig
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
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Workflow
from orchestrator.workflow.planning import Programs
from orchestrator.workspace.caches import NO_CACHES, Caches
from orchestrator.workspace.mounts import Mode
from orchestrator.workspace.shared_files import Shared
from orchestrator.workspace.untracked import NO_COPIES, Copies


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What was checked and found good before anything was created."""

    config: ParallelConfig
    repository: Repository
    engine: ContainerEngine
    features: EngineFeatures
    agent: Agent
    image: str
    cpus: float
    egress: Egress | None
    """None where there is no network."""
    inherited_env: Mapping[str, str]
    secrets: Secrets
    redactor: Redactor
    copies: Copies = NO_COPIES
    given: str | None = None
    """What the user gives all workers to read."""
    workflow: Workflow | None = None
    """Whose tasks the workers have, each by its name."""
    programs: Programs = field(default_factory=dict)
    """The wishes for tasks with an agent program of their own."""
    grounds: Mapping[str, "Ground"] = field(default_factory=dict)
    """By the names of tasks: what is otherwise for each."""


@dataclass(frozen=True, kw_only=True)
class RunContext(Ground):
    """What all workers of a run share."""

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


def of_worker(run: RunContext, spec: WorkerSpec) -> RunContext:
    """Return a run as one worker is to have it: with the wishes of its task."""
    own = run.grounds.get(spec.name or "")
    if own is None:
        return run
    return replace(
        run,
        config=own.config,
        agent=own.agent,
        image=own.image,
        cpus=own.cpus,
        egress=own.egress,
        inherited_env=own.inherited_env,
    )


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
