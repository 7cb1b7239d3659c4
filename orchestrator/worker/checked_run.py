"""A checked request for a run, before anything of the run is created."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.agents.base import Agent
from orchestrator.broker.keys import (
    Keys,
    choose_keys,
    readable_repositories,
    shown_to_workers,
    takes_keys,
)
from orchestrator.config.access import Access, StageAccess
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ContainerEngine, EngineFeatures
from orchestrator.engine.spec import Egress
from orchestrator.git.repository import Repository
from orchestrator.state.secret_files import Secrets
from orchestrator.text.redact import Redactor
from orchestrator.workflow.model import Workflow
from orchestrator.workspace.untracked import NO_COPIES, Copies


@dataclass(frozen=True, kw_only=True)
class CheckedSettings:
    """The settings of a worker, and the values derived from them."""

    config: ParallelConfig
    agent: Agent
    image: str
    access: StageAccess
    """Network access of the containers of each stage."""
    egress: Mapping[Access, Egress]
    """Filters of the networks that the worker's containers have; without those of network `none`.
    """
    inherited_env: Mapping[str, str]
    """The caller's variables that the agent program gets, or that the credential broker holds."""

    @property
    def worker_env(self) -> dict[str, str]:
        """The variables that the agent program gets, without those that the broker replaces."""
        given = {**self.inherited_env, **self.config.isolation.env}
        if self.config.isolation.keys == "env":
            return given
        return self.shown(given)

    def shown(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables without those that the credential broker keeps."""
        kept = {one.variable for one in self.config.isolation.private_repositories}
        found = shown_to_workers(env, self.agent.inherited_env)
        return {name: value for name, value in found.items() if name not in kept}

    def keys(self, model: str | None) -> Keys | None:
        """Return what the credential broker holds for a worker; None with `--keys env`.

        Raises:
            ConfigError: The broker cannot hold the key that the worker needs, or a token of a git
                host is not set.
        """
        if self.config.isolation.keys == "env":
            return None
        given = {**self.inherited_env, **self.config.isolation.env}
        program = self.agent.inherited_env
        listed = self.config.isolation.private_repositories
        repositories = tuple(
            readable_repositories(((one.url, one.variable) for one in listed), given)
        )
        if repositories and not takes_keys(program, given):
            return Keys(repositories=repositories)
        needed = self.agent.missing_key(model, self.shown(given))
        keys = choose_keys(program, given, api_base=self.config.api_base, key_of_model=needed)
        return replace(keys, repositories=repositories)


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """A request, with everything checked that needs no engine."""

    settings: CheckedSettings
    """The settings of the run."""
    repository: Repository
    secrets: Secrets
    redactor: Redactor
    copies: Copies = NO_COPIES
    given: str | None = None
    """Text of the context file that all workers can read; None without a file."""
    workflow: Workflow | None = None
    """The workflow whose tasks the workers have; None without a workflow."""
    programs: Mapping[str, ParallelConfig] = field(default_factory=dict)
    """Settings of tasks that use another agent program."""
    tasks: Mapping[str, CheckedSettings] = field(default_factory=dict)
    """The settings of each task of the workflow, by name. Tasks with equal settings share them."""

    def settings_of(self, task: str | None) -> CheckedSettings:
        """Return the settings of a task; those of the run for a worker without a named task."""
        return self.tasks.get(task or "", self.settings)

    def by_task(self) -> list[tuple[str | None, CheckedSettings]]:
        """Return all settings that workers have, each once, with the first task that has them."""
        found: dict[int, tuple[str | None, CheckedSettings]] = {}
        for name, settings in self.tasks.items():
            found.setdefault(id(settings), (name, settings))
        return list(found.values()) or [(None, self.settings)]


@dataclass(frozen=True, kw_only=True)
class CheckedRun:
    """A checked request, and the engine that can fulfil it."""

    request: CheckedRequest
    engine: ContainerEngine
    features: EngineFeatures
