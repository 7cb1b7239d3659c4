"""A request for a run after all checks, before anything of the run is created."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.agents.base import Agent
from orchestrator.base.text.redact import Redactor
from orchestrator.config.network_access import Access, StageAccess
from orchestrator.config.settings.company import Company
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Workflow
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import Egress
from orchestrator.network.broker.keys import (
    Keys,
    choose_keys,
    readable_repositories,
    takes_keys,
    without_keys,
)
from orchestrator.repository.repository import Repository
from orchestrator.state.secret_files import Secrets
from orchestrator.worker.workspace.untracked import NO_COPIES, Copies


@dataclass(frozen=True, kw_only=True)
class CheckedSettings:
    """The settings of one or more workers, and the values that were derived from them."""

    config: ParallelConfig
    agent: Agent
    image: str
    access: StageAccess
    """Network access of the workers' containers, for each stage."""
    egress: Mapping[Access, Egress]
    """Filter rules for each kind of network access of the workers' containers; none for the network
    `none`.
    """
    inherited_env: Mapping[str, str]
    """The user's variables that the agent program gets, or that the credential broker keeps for
    itself.
    """

    @property
    def worker_env(self) -> dict[str, str]:
        """Return the variables that the agent program gets, without those that the broker keeps."""
        given = {**self.inherited_env, **self.config.isolation.env}
        if self.config.isolation.keys == "env":
            return given
        return self.without_keys(given)

    def without_keys(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables without those that the credential broker keeps."""
        kept = {repository.variable for repository in self.config.isolation.private_repositories}
        kept |= set(self.company.sources)
        found = without_keys(env, self.agent.inherited_env)
        return {name: value for name, value in found.items() if name not in kept}

    @property
    def company(self) -> Company:
        """Return the company's mirrors, proxy and certificate authorities."""
        return Company.parse(self.config.isolation.company)

    def company_env(self, access: Access) -> dict[str, str]:
        """Return the variables with which programs use the company's network."""
        if access.network == "none":
            return {}
        given = {**self.inherited_env, **self.config.isolation.env}
        return self.company.environment(given, is_open=access.network == "open")

    def keys(self, model: str | None) -> Keys | None:
        """Return the keys that the credential broker holds for a worker; None with `--keys env`.

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
            readable_repositories(((place.url, place.variable) for place in listed), given)
        )
        if repositories and not takes_keys(program, given):
            return Keys(repositories=repositories)
        needed = self.agent.missing_key(model, self.without_keys(given))
        keys = choose_keys(program, given, api_base=self.config.api_base, key_of_model=needed)
        return replace(keys, repositories=repositories)


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """A request for a run, of which everything was checked that needs no container engine."""

    settings: CheckedSettings
    """The settings of the run as a whole."""
    repository: Repository
    secrets: Secrets
    redactor: Redactor
    copies: Copies = NO_COPIES
    given: str | None = None
    """Text of the user's context file, which all workers can read; None without such a file."""
    workflow: Workflow | None = None
    """The workflow whose tasks the workers perform; None without a workflow."""
    programs: Mapping[str, ParallelConfig] = field(default_factory=dict)
    """Settings of tasks that use another agent program, by the program's name."""
    tasks: Mapping[str, CheckedSettings] = field(default_factory=dict)
    """The settings of each task in the workflow, by its id. Tasks with equal settings share an
    object.
    """

    def settings_of(self, task: str | None) -> CheckedSettings:
        """Return the settings of a task; None stands for a worker without a task of a workflow."""
        return self.tasks.get(task or "", self.settings)

    def by_task(self) -> list[tuple[str | None, CheckedSettings]]:
        """Return all distinct settings of workers, each with the first task that has them."""
        found: dict[int, tuple[str | None, CheckedSettings]] = {}
        for name, settings in self.tasks.items():
            found.setdefault(id(settings), (name, settings))
        return list(found.values()) or [(None, self.settings)]


@dataclass(frozen=True, kw_only=True)
class CheckedRun:
    """A checked request, with the container engine that will run it."""

    request: CheckedRequest
    engine: ContainerEngine
    features: EngineFeatures
