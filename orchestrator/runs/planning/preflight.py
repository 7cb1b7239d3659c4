"""Check everything that can be checked before a run creates anything.

Every package checks the settings that it uses. This module only calls these checks and collects
their problems, so that the user sees all problems at once.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.agents.base import Agent
from orchestrator.agents.settings_check import (
    check_length,
    check_supported,
    choose_agent,
    missing_keys,
    user_variables,
    with_needed_broker,
)
from orchestrator.base.errors import ConfigError, ImageNotFoundError
from orchestrator.base.text.redact import Redactor, secret_variables
from orchestrator.config.derived import with_isolation
from orchestrator.config.fields import CONTAINER_FIELDS
from orchestrator.config.loading.bounds import bounded_by
from orchestrator.config.loading.loading import check_contradictions
from orchestrator.config.network_access import stage_access
from orchestrator.config.settings.company import Company
from orchestrator.config.settings.project import Service
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.config.workflow.planning import (
    Programs,
    check_modes,
    check_results,
    distinct_settings,
    merges,
    plan_workers,
)
from orchestrator.engine.egress import (
    Resolve,
    check_allow,
    check_gateways,
    check_shared_network,
    host_sets,
    resolve_here,
    resolver_of,
    worker_egress,
)
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.places.place import ClusterEngine, RemoteEngine
from orchestrator.repository.checkouts.in_progress import check_settled
from orchestrator.repository.commits.task_merge import check_git
from orchestrator.repository.repository import Repository
from orchestrator.runs.live.broker_container import check_prices
from orchestrator.runs.planning.capacity import check_worktrees
from orchestrator.runs.planning.enforcement import check_enforcement
from orchestrator.runs.planning.machine_check import machine_problems
from orchestrator.runs.planning.problems import Attempt, Problems
from orchestrator.state.secret_files import Secrets, read_secrets
from orchestrator.worker.checked_run import CheckedRequest, CheckedRun, CheckedSettings
from orchestrator.worker.steps.dotenv import check_dotenv
from orchestrator.worker.steps.place import check_place_network, check_transfer
from orchestrator.worker.steps.services import check_services
from orchestrator.worker.workspace.confined import check_confined
from orchestrator.worker.workspace.overlay_probe import choose_transfer
from orchestrator.worker.workspace.shared_files import read_given
from orchestrator.worker.workspace.untracked import choose_copies, secret_lines


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """A caller's request for a run, before any check."""

    config: ParallelConfig
    root: Path
    """Any directory of the repository."""
    agent: Agent | None = None
    """Adapter for all workers. Default: the agent that each worker's settings name."""
    workflow: Workflow | None = None
    """The workflow whose tasks are run; None for the tasks of `config`."""
    programs: Programs = field(default_factory=dict)
    """Settings of tasks that use another agent program than the run, by the program's name."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The caller's environment variables."""
    agent_config: bytes | None = None
    """Content of the agent program's configuration file, if it was read before."""
    resolve: Resolve = resolve_here
    """Resolves names of hosts as the engine's machine does."""


def check_request(request: RunRequest) -> CheckedRequest:
    """Check everything about a request that needs no container engine.

    Raises:
        OrchestratorError: The run could not start. The error lists every problem.
    """
    problems = Problems()
    repository, settings = _check_settings(request, problems)
    return _read_inputs(request, repository, settings, problems)


def check_run(request: RunRequest, engine: ContainerEngine, *, resumed: bool = False) -> CheckedRun:
    """Check a request, with the repository, the container engine and the machine.

    Args:
        request: The request.
        engine: The container engine.
        resumed: Whether the run has begun, and its worktrees exist.

    Raises:
        OrchestratorError: The run could not start. The error lists every problem.
    """
    problems = Problems()
    if isinstance(engine, ClusterEngine):
        engine.configure(request.config.cluster)
    request = _with_known_runtime(request, engine, problems)
    request = replace(request, resolve=resolver_of(engine))
    repository, settings = _check_settings(request, problems)
    features = _check_engine(engine, settings, problems)
    checked = _read_inputs(request, repository, settings, problems)
    if not resumed and request.config.retention is None:
        # It is checked again when the numbers are reserved; a user should not wait for the proof of
        # a network to read it. With `retention`, old worktrees are removed between the checks.
        check_worktrees(repository, request.config)
    configs = [own.config for _, own in checked.by_task()]
    proven = check_enforcement(engine, features[0].value, repository, configs)
    if not resumed:
        every = [own for _, own in checked.by_task()]
        problems.attempt(check_prices, engine, str(repository.common_dir), every)
    proven = choose_transfer(engine, proven, repository, request.config.isolation)
    if proven.transfer == "streams" and isinstance(engine, RemoteEngine):
        engine.note_other_machine()
    for task, own in checked.by_task():
        of_task = problems.of_task(task)
        of_task.attempt(check_transfer, engine, proven, own.config)
    problems.raise_all()
    return CheckedRun(request=checked, engine=engine, features=proven)


def _with_known_runtime(
    request: RunRequest, engine: ContainerEngine, problems: Problems
) -> RunRequest:
    """Return the request, without its container runtime if Docker does not have the runtime.

    The missing runtime is reported here, and by no later check again.
    """
    isolation = request.config.isolation
    if isolation.runtime is None:
        return request
    if not problems.attempt(engine.check, images=(), runtime=isolation.runtime).has_problem:
        return request
    return replace(request, config=with_isolation(request.config, runtime=None))


_Settings = list[tuple[str | None, list[Task], CheckedSettings]]
"""Id of the first task with certain settings, all tasks with these settings, and the settings."""


def _check_settings(request: RunRequest, problems: Problems) -> tuple[Repository, _Settings]:
    """Check the settings of the run, or, in a workflow, of each task; find the repository."""
    config, workflow = request.config, request.workflow
    every: list[tuple[ParallelConfig, list[Task]]] = [(config, [])]
    if workflow is not None:
        every = distinct_settings(config, workflow, request.programs)
        problems.attempt(check_modes, config, workflow)
        if merges(workflow):
            problems.attempt(check_git)
    problems.attempt(check_allow, [own for own, _ in every])
    if config.triggers.notify is not None:
        # Imported here because most runs send no notifications.
        from orchestrator.runs.notify.webhooks import signing_key

        problems.attempt(signing_key)
    repository = problems.attempt(Repository, request.root)
    if repository.has_problem:
        problems.raise_all()
    if config.include_uncommitted:
        problems.attempt(check_settled, repository.value)
    found: _Settings = []
    for own, tasks in every:
        first = tasks[0].id if tasks else None
        settings = _check_worker(request, repository.value, own, tasks, problems.of_task(first))
        if settings is not None:
            found.append((first, tasks, settings))
    return repository.value, found


def _check_worker(
    request: RunRequest,
    repository: Repository,
    config: ParallelConfig,
    tasks: Sequence[Task],
    problems: Problems,
) -> CheckedSettings | None:
    """Check the settings of one or more workers; return None if their agent program is unknown."""
    attempt = problems.attempt
    if tasks:
        attempt(check_contradictions, config)
        attempt(check_results, config, tasks)
    if config.project.services:
        attempt(check_shared_network, config.isolation.runtime)
    base = attempt(repository.resolve, config.base)
    if not base.has_problem:
        attempt(check_dotenv, repository, base.value, config.project.dotenv)
        attempt(check_confined, config, repository, base.value)
    chosen = attempt(choose_agent, config, request.agent)
    if chosen.has_problem:
        return None
    agent, image = chosen.value
    variables = attempt(user_variables, config, agent, request.environ)
    inherited_env = {} if variables.has_problem else variables.value
    config = with_needed_broker(config, agent, inherited_env)
    attempt(check_supported, config, agent)
    attempt(Company.parse(config.isolation.company).bundle)
    attempt(check_length, config, agent)
    egress = attempt(
        worker_egress,
        config,
        agent.inherited_env,
        inherited_env,
        host_sets(config.isolation.allow_sets, repository, request.environ),
        request.resolve,
    )
    settings = CheckedSettings(
        config=config,
        agent=agent,
        image=image,
        access=stage_access(config),
        egress={} if egress.has_problem else egress.value,
        inherited_env=inherited_env,
    )
    for model in dict.fromkeys(spec.model for spec in plan_workers(config)):
        attempt(settings.keys, model)
    return settings


def _check_engine(
    engine: ContainerEngine, every: _Settings, problems: Problems
) -> list[Attempt[EngineFeatures]]:
    """Check that the engine has the images of workers, and that the machine is large enough."""
    found = []
    for task, _, settings in every:
        config, of_task = settings.config, problems.of_task(task)
        services = (service.image for service in config.project.services.values())
        broker = (BROKER_IMAGE,) if config.isolation.keys == "broker" else ()
        images = (settings.image, BASE_IMAGE, *broker, *services)
        features = of_task.attempt(engine.check, images=images, runtime=config.isolation.runtime)
        found.append(features)
        if features.has_problem:
            # The engine's check ended at the first missing image and returned no machine data.
            for image in images[1:]:
                of_task.attempt(engine.check, images=(image,), runtime=None)
            features = of_task.attempt(engine.check, images=(), runtime=None)
        if not features.has_problem:
            # protection: engine-without-gateways-refused-for-allow-list
            of_task.attempt(check_gateways, config, settings.egress, features.value)
            of_task.attempt(check_place_network, engine, features.value, config, settings.egress)
            for too_large in machine_problems(config, features.value):
                of_task.add(too_large)
            of_task.attempt(check_services, engine, features.value, config)
            for name, service in config.project.services.items():
                of_task.attempt(_check_service, engine, name, service)
        missing = missing_keys(config, settings.agent, settings.inherited_env)
        # protection: missing-api-key-refused
        if missing is not None:
            of_task.add(missing)
    return found


def _check_service(engine: ContainerEngine, name: str, service: Service) -> None:
    with suppress(ImageNotFoundError):  # reported already
        if not service.command and not engine.has_command(service.image):
            raise ConfigError(
                f"the service `{name}` has no command, and its image `{service.image}` has none",
                key="service.no-command",
                hint=f"set `command` of the service `{name}`, or use an image with a command",
            )


def _read_inputs(
    request: RunRequest, repository: Repository, every: _Settings, problems: Problems
) -> CheckedRequest:
    """Read the inputs that all workers share, such as secrets, and return the checked request."""
    config = request.config
    own = None if config.agent_config is None else repository.top / config.agent_config
    secrets = problems.attempt(
        read_secrets,
        config.isolation.secrets,
        request.environ,
        agent_config=own if request.agent_config is None else request.agent_config,
    )
    bounded = () if config.preset is None else bounded_by(config.preset)
    copies = problems.attempt(
        choose_copies,
        repository,
        config.isolation.copied,
        heeds_repository=CONTAINER_FIELDS["copy"] not in bounded,
    )
    given = problems.attempt(read_given, repository.top, config.context)
    problems.raise_all()
    tasks = {task.id: settings for _, members, settings in every for task in members}
    settings = _run_settings(config, tasks) if tasks else every[0][2]
    return CheckedRequest(
        settings=settings,
        repository=repository,
        secrets=secrets.value,
        redactor=_redactor(
            [config, *request.programs.values()],
            settings.inherited_env,
            secrets.value,
            secret_lines(repository.top, copies.value),
        ),
        copies=copies.value,
        given=given.value,
        workflow=request.workflow,
        programs=request.programs,
        tasks=tasks,
    )


def _run_settings(config: ParallelConfig, tasks: Mapping[str, CheckedSettings]) -> CheckedSettings:
    """Return the settings of a workflow's run, with the inherited variables of all its tasks."""
    every = list(tasks.values())
    inherited_env = {
        name: text for settings in every for name, text in settings.inherited_env.items()
    }
    return replace(every[0], config=config, inherited_env=inherited_env)


def _redactor(
    configs: Iterable[ParallelConfig],
    inherited_env: Mapping[str, str],
    secrets: Secrets,
    copied: Mapping[str, str],
) -> Redactor:
    environments = [{**copied, **inherited_env}]
    # protection: keys-in-agent-config-are-redacted
    environments += secrets.keys_in_config
    tokens: dict[str, bytes] = {}
    for config in configs:
        base = {} if config.api_base is None else {"api_base": config.api_base}
        environments.append({**config.isolation.env, **base})
        for repository in config.isolation.private_repositories:
            given = {**inherited_env, **config.isolation.env}.get(repository.variable, "")
            tokens[repository.variable] = given.rpartition(":")[2].encode()
    return Redactor(secrets.values, tokens, *map(secret_variables, environments))
