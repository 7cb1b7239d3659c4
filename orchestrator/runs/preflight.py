"""Everything that must be right before a run creates anything."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.agents import load_agent
from orchestrator.agents.base import (
    LONGEST_LINE,
    LONGEST_WORD,
    Agent,
    AgentCommand,
    AgentSettings,
)
from orchestrator.config.loading import contradiction_hint
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.egress import (
    allowed_destinations,
    base_urls,
    check_runtime,
    check_shared_network,
)
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.protocol import ContainerEngine, EngineFeatures
from orchestrator.engine.spec import Egress
from orchestrator.errors import AuthenticationError, ConfigError, OrchestratorError
from orchestrator.git.merge import check_git
from orchestrator.git.repository import Repository
from orchestrator.runs.machine_check import check_machine
from orchestrator.state.secret_files import Secrets, read_secrets
from orchestrator.text.redact import Redactor, secret_variables
from orchestrator.text.sanitize import is_text, one_line
from orchestrator.worker.checked_run import CheckedRequest, CheckedRun, CheckedSettings
from orchestrator.worker.dotenv import check_dotenv
from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.planning import NO_PROGRAMS, Programs, config_of, plan_workers
from orchestrator.workspace.confined import check_confined
from orchestrator.workspace.shared_files import read_given
from orchestrator.workspace.untracked import choose_copies, secret_lines


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What the caller asks for; nothing of it is checked yet."""

    config: ParallelConfig
    root: Path
    """Any directory of the repository."""
    agent: Agent | None = None
    """Default: the agent that the settings of each worker name."""
    workflow: Workflow | None = None
    """The tasks, if they are those of a workflow."""
    programs: Programs = field(default_factory=dict)
    """The settings for tasks with an agent program of their own."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The variables of the caller."""


def check_run(request: RunRequest, engine: ContainerEngine) -> CheckedRun:
    """Check a request against the repository, the engine and the machine.

    Raises:
        OrchestratorError: The run could not start.
    """
    runtime = request.config.isolation.runtime
    if runtime is not None:
        # First of all: what a runtime lacks does not matter if it is not installed.
        engine.check(images=(), runtime=runtime)
    checked = check_request(request)
    features = [_check_on(engine, task, settings) for task, settings in checked.by_task()]
    return CheckedRun(request=checked, engine=engine, features=features[0])


def _check_on(
    engine: ContainerEngine, task: str | None, settings: CheckedSettings
) -> EngineFeatures:
    """Check that an engine has the images of a worker, and its machine the resources."""
    config = settings.config
    services = (service.image for service in config.project.services.values())
    images = (settings.image, BASE_IMAGE, *services)
    with _named(task):
        features = engine.check(images=images, runtime=config.isolation.runtime)
        check_machine(config, features)
        missing = missing_keys(config, settings.agent, settings.inherited_env)
        if missing is not None:
            raise missing
    return features


def check_request(request: RunRequest) -> CheckedRequest:
    """Check a request as far as no engine is needed.

    Raises:
        OrchestratorError: The run could not start.
    """
    config, workflow = request.config, request.workflow
    check_kept(config, workflow, request.programs)
    if workflow is not None and any(len(one.depends_on) + len(one.earlier) > 1
                                    for one in workflow.tasks):  # fmt: skip
        check_git()
    tasks = _task_settings(request)
    settings = _run_settings(request, tasks) if tasks else _check_settings(request, config)
    repository = Repository(request.root)
    secrets = read_secrets(config.isolation.secrets, request.environ)
    copies = choose_copies(repository, config.isolation.copied)
    return CheckedRequest(
        settings=settings,
        repository=repository,
        secrets=secrets,
        redactor=_redactor(
            [config, *request.programs.values()],
            settings.inherited_env,
            secrets,
            secret_lines(repository.top, copies),
        ),
        copies=copies,
        given=read_given(repository.top, config.context),
        workflow=workflow,
        programs=request.programs,
        tasks=tasks,
    )


def _check_settings(request: RunRequest, config: ParallelConfig) -> CheckedSettings:
    """Check the settings of a worker."""
    if config.project.services:
        check_shared_network(config.isolation.runtime)
    repository = Repository(request.root)
    base = repository.resolve(config.base)
    check_dotenv(repository, base, config.project.dotenv)
    check_confined(config, repository, base)
    agent, image = choose_agent(config, request.agent)
    check_settings(config, agent)
    inherited_env = inherited(agent, request.environ)
    return CheckedSettings(
        config=config,
        agent=agent,
        image=image,
        egress=_egress(config, agent, inherited_env),
        inherited_env=inherited_env,
    )


def _task_settings(request: RunRequest) -> dict[str, CheckedSettings]:
    """Check the settings of each task of a workflow."""
    if request.workflow is None:
        return {}
    found = {}
    for config, tasks in alike(request.config, request.workflow, request.programs):
        with _named(tasks[0].id):
            try:
                # Settings that are valid for the run and for the task may not be valid together.
                ParallelConfig.model_validate(dict(config))
            except ValidationError as error:
                said = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ConfigError(said, hint=contradiction_hint(said)) from error
            settings = _check_settings(request, config)
        found.update(dict.fromkeys((task.id for task in tasks), settings))
    return found


def _run_settings(request: RunRequest, tasks: Mapping[str, CheckedSettings]) -> CheckedSettings:
    """Return the settings of a run with a workflow: its tasks inherit variables by themselves."""
    every = list(tasks.values())
    inherited_env = {name: text for one in every for name, text in one.inherited_env.items()}
    return replace(every[0], config=request.config, inherited_env=inherited_env)


@contextmanager
def _named(task: str | None) -> Iterator[None]:
    """Name the task in the message of an error."""
    try:
        yield
    except OrchestratorError as error:
        if task is not None:
            error.message = f"task `{task}`: {error.message}"
        raise


def check_kept(
    config: ParallelConfig, workflow: Workflow | None, programs: Programs = NO_PROGRAMS
) -> None:
    """Refuse what no worker of the run would keep.

    Args:
        config: The settings of the run.
        workflow: The tasks, if they are those of a workflow.
        programs: The settings for tasks with an agent program of their own.

    Raises:
        ConfigError: A setting would be accepted and ignored.
    """
    tasks = () if workflow is None else workflow.tasks
    writers = [task.id for task in tasks if task.mode == "rw"]
    if config.isolation.read_only and writers:
        raise ConfigError(
            f"task `{writers[0]}`: `mode` is `rw`, but the run is read-only",
            hint="leave `mode` out, or run without `read_only`",
        )
    of_tasks = [] if workflow is None else alike(config, workflow, programs)
    for own, members in of_tasks:
        _check_no_code(own, members)
    configs = [config] if workflow is None else [own for own, _ in of_tasks]
    if config.isolation.allow and not any("open" in one.networks for one in configs):
        raise ConfigError(
            "`--allow` names a host, but no worker has a network: `network` is `none`",
            hint="leave it out, or use `--network open`",
        )


def _check_no_code(config: ParallelConfig, tasks: Iterable[Task]) -> None:
    """Refuse a command into which words of other workers would be put: a shell would run them."""
    for task in tasks:
        if config.agent_cli == "shell" and task.results_at:
            raise ConfigError(
                f"task `{task.id}` holds `{{{{results}}}}` and is a command: "
                "a shell would run what other workers said",
                hint="the command finds the results in the file `$ORCHESTRATOR_RESULTS`",
            )


def alike(
    config: ParallelConfig, workflow: Workflow, programs: Programs
) -> list[tuple[ParallelConfig, list[Task]]]:
    """Return each distinct configuration of tasks with its tasks, whatever their texts are."""
    found: dict[str, tuple[ParallelConfig, list[Task]]] = {}
    for task in workflow.tasks:
        own = config_of(config, task, programs)
        key = own.model_copy(update={"tasks": ("-",)}).model_dump_json()
        found.setdefault(key, (own, []))[1].append(task)
    return list(found.values())


def choose_agent(config: ParallelConfig, agent: Agent | None) -> tuple[Agent, str]:
    """Return the agent program's adapter, and the image it runs in.

    Raises:
        ConfigError: No installed package offers it.
    """
    chosen = agent or load_agent(config.agent_cli)
    return chosen, config.image or chosen.image


def check_settings(config: ParallelConfig, agent: Agent) -> None:
    """Refuse what the agent program would pass over.

    Raises:
        ConfigError: A setting can be kept neither by it nor from outside.
    """
    settings = AgentSettings.of(config)
    unsupported = agent.unsupported(settings)
    if unsupported is not None:
        unsupported = _as_it_was_asked(unsupported, config)
        raise ConfigError(
            f"`{agent.name}` cannot keep {unsupported}",
            hint="leave it out, or choose another program with `--agent-cli`",
        )
    for spec in plan_workers(config):
        # An adapter that breaks is to break now, not when its worktree is made.
        _check_length(agent.command(spec, settings), config, agent.name)


def _check_length(command: AgentCommand, config: ParallelConfig, program: str) -> None:
    """Refuse what no program can be started with.

    Raises:
        ConfigError: An argument or a variable is too long, or all of them are together.
    """
    env = {**command.env, **config.isolation.env}
    variables = {name: _size(f"{name}={value}") for name, value in env.items()}
    words = [_size(word) for word in command.argv]
    longest = max(variables, key=lambda name: variables[name], default=None)
    if longest is not None and variables[longest] > LONGEST_WORD:
        raise ConfigError(
            f"variable `{one_line(longest, limit=60)}` is {variables[longest]} bytes long: "
            f"a program takes {LONGEST_WORD} at most",
            hint="put it into a file: `--secret NAME=@FILE`, `--copy FILE`, or a file of a commit",
        )
    if max(words) > LONGEST_WORD:
        raise ConfigError(
            f"a task is too long: `{program}` would be started with an argument of {max(words)} "
            f"bytes, and takes {LONGEST_WORD} at most",
            hint="put the text into a file of the repository, and name the file in the task",
        )
    if sum(words) + sum(variables.values()) > LONGEST_LINE:
        raise ConfigError(
            f"a task and the variables are {sum(words) + sum(variables.values())} bytes long: "
            f"a program takes {LONGEST_LINE} at most",
            hint="put the text into a file of the repository, and name the file in the task",
        )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _as_it_was_asked(unsupported: str, config: ParallelConfig) -> str:
    """A total is kept by what each worker is given of it."""
    if config.budget_per_worker is None:
        unsupported = unsupported.replace("`--budget-per-worker`", "`--budget-total`")
    if config.tokens_per_worker is None:
        unsupported = unsupported.replace("`--tokens-per-worker`", "`--tokens-total`")
    return unsupported


def inherited(agent: Agent, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's variables that an agent is handed on.

    Raises:
        ConfigError: One of them is not UTF-8 text.
    """
    found = {name: environ[name] for name in agent.inherited_env if name in environ}
    for name, value in found.items():
        if not is_text(value):
            raise ConfigError(
                f"environment variable `{name}` is not UTF-8 text",
                hint="it would be passed on to the worker: set it anew, or unset it",
            )
    return found


def missing_keys(
    config: ParallelConfig, agent: Agent, inherited_env: Mapping[str, str]
) -> AuthenticationError | None:
    """Return an error that names the models without a key, if there are any.

    A server or an image of the user's own may need none, or bring its own.
    """
    if config.api_base is not None or config.image is not None:
        return None
    secrets = {entry.partition("=")[0]: "a file" for entry in config.isolation.secrets}
    environment = {**secrets, **inherited_env, **config.isolation.env}
    needs: dict[str, str] = {}
    for model in dict.fromkeys(spec.model for spec in plan_workers(config)):
        key = agent.missing_key(model, environment)
        if key is not None:
            needs["the default model" if model is None else f"`{model}`"] = key
    if not needs:
        return None
    wants = ", ".join(f"{model} needs `{key}`" for model, key in needs.items())
    return AuthenticationError(
        f"no API key: {wants}",
        hint=f"`export {next(iter(needs.values()))}=...`, or give it with `--env-file FILE`; "
        "`--api-base URL` is for a server of your own",
    )


def _egress(config: ParallelConfig, agent: Agent, handed_on: Mapping[str, str]) -> Egress | None:
    isolation = config.isolation
    if "open" not in config.networks:
        return None
    check_runtime(isolation.runtime)
    environment = {**handed_on, **isolation.env}
    urls = list(base_urls(agent.inherited_env, environment))
    if config.api_base is not None:
        urls.append(config.api_base)
    return Egress(image=BASE_IMAGE, allowed=allowed_destinations(isolation.allow, urls))


def _redactor(
    configs: Iterable[ParallelConfig],
    handed_on: Mapping[str, str],
    secrets: Secrets,
    copied: Mapping[str, str],
) -> Redactor:
    """Make what takes secrets out of all that is kept or shown."""
    environments = [{**copied, **handed_on}]
    for config in configs:
        base = {} if config.api_base is None else {"api_base": config.api_base}
        environments.append({**config.isolation.env, **base})
    return Redactor(secrets.values, *map(secret_variables, environments))
