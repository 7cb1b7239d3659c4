"""Everything that must be right before a run creates anything."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.egress import (
    allowed_destinations,
    base_urls,
    check_runtime,
    check_shared_network,
)
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.engine.spec import Egress
from orchestrator.errors import AuthenticationError, ConfigError, OrchestratorError
from orchestrator.git.merge import check_git
from orchestrator.git.repository import Repository
from orchestrator.runs.machine_check import check_machine, cpus_of
from orchestrator.state.secret_files import Secrets, read_secrets
from orchestrator.text.redact import Redactor, secret_variables
from orchestrator.text.sanitize import is_text, one_line
from orchestrator.worker.context import Ground
from orchestrator.worker.dotenv import check_dotenv
from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.planning import NO_PROGRAMS, Programs, config_of, plan_workers
from orchestrator.workspace.confined import check_confined
from orchestrator.workspace.shared_files import read_given
from orchestrator.workspace.untracked import Copies, choose_copies, secret_lines


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What can be checked without an engine."""

    repository: Repository
    agent: Agent
    image: str
    egress: Egress | None
    inherited_env: Mapping[str, str]
    secrets: Secrets
    redactor: Redactor
    copies: Copies
    given: str | None


def check_wishes(
    config: ParallelConfig,
    root: Path,
    agent: Agent | None,
    environ: Mapping[str, str] | None = None,
) -> Wishes:
    """Check what was asked for, as far as no engine is needed.

    Raises:
        OrchestratorError: A run could not start.
    """
    environ = os.environ if environ is None else environ
    if config.project.services:
        check_shared_network(config.isolation.runtime)
    repository = Repository(root)
    base = repository.resolve(config.base)
    check_dotenv(repository, base, config.project.dotenv)
    check_confined(config, repository, base)
    chosen, image = choose_agent(config, agent)
    check_settings(config, chosen)
    secrets = read_secrets(config.isolation.secrets, environ)
    handed_on = inherited(chosen, environ)
    copies = choose_copies(repository, config.isolation.copied)
    return Wishes(
        repository=repository,
        agent=chosen,
        image=image,
        egress=_egress(config, chosen, handed_on),
        inherited_env=handed_on,
        secrets=secrets,
        redactor=_redactor([config], handed_on, secrets, secret_lines(repository.top, copies)),
        copies=copies,
        given=read_given(repository.top, config.context),
    )


def check_ground(
    config: ParallelConfig,
    root: Path,
    engine: ContainerEngine,
    agent: Agent | None,
    environ: Mapping[str, str] | None = None,
) -> Ground:
    """Check the wishes against the repository, the engine and the machine.

    Args:
        config: The wishes.
        root: Anywhere in the repository.
        engine: Where it is to run.
        agent: Default: the one that `config` names.
        environ: Variables of the caller. Default: our own.

    Raises:
        OrchestratorError: A run could not start.
    """
    if config.isolation.runtime is not None:
        # Before anything else: what a runtime does not do is no news of one that is not there.
        engine.check(images=(), runtime=config.isolation.runtime)
    wishes = check_wishes(config, root, agent, environ)
    services = (service.image for service in config.project.services.values())
    images = (wishes.image, BASE_IMAGE, *services)
    features = engine.check(images=images, runtime=config.isolation.runtime)
    check_machine(config, features)
    missing = missing_keys(config, wishes.agent, wishes.inherited_env)
    if missing is not None:
        raise missing
    return Ground(
        config=config,
        engine=engine,
        features=features,
        cpus=cpus_of(config, features),
        **vars(wishes),
    )


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


def check_grounds(
    config: ParallelConfig,
    root: Path,
    engine: ContainerEngine,
    agent: Agent | None,
    workflow: Workflow | None,
    environ: Mapping[str, str] | None = None,
    *,
    programs: Programs = NO_PROGRAMS,
) -> Ground:
    """Check what a run asks for, and each task of its workflow by itself.

    Args:
        config: The wishes.
        root: Anywhere in the repository.
        engine: Where it is to run.
        agent: Default: the one that each task's configuration names.
        workflow: The tasks, if they are of one.
        environ: Variables of the caller. Default: our own.
        programs: The wishes for tasks with an agent program of their own.

    Raises:
        OrchestratorError: A run could not start.
    """
    check_kept(config, workflow, programs)
    if workflow is None:
        return check_ground(config, root, engine, agent, environ)
    if any(len(task.depends_on) + len(task.earlier) > 1 for task in workflow.tasks):
        check_git()
    grounds = {
        task.id: ground
        for own, tasks in alike(config, workflow, programs)
        for ground in [_of_task(tasks[0], own, root, engine, agent, environ)]
        for task in tasks
    }
    first = next(iter(grounds.values()))
    handed_on = {
        name: value for one in grounds.values() for name, value in one.inherited_env.items()
    }
    copied = secret_lines(first.repository.top, first.copies)
    return replace(
        first,
        config=config,
        inherited_env=handed_on,
        redactor=_redactor([config, *programs.values()], handed_on, first.secrets, copied),
        workflow=workflow,
        programs=programs,
        grounds=grounds,
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


def _of_task(
    task: Task,
    config: ParallelConfig,
    root: Path,
    engine: ContainerEngine,
    agent: Agent | None,
    environ: Mapping[str, str] | None,
) -> Ground:
    try:
        # What is right for the run, and for the task, may not go together.
        ParallelConfig.model_validate(dict(config))
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"task `{task.id}`: {said}") from error
    try:
        return check_ground(config, root, engine, agent, environ)
    except OrchestratorError as error:
        error.message = f"task `{task.id}`: {error.message}"
        raise


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
    config: ParallelConfig, agent: Agent, handed_on: Mapping[str, str]
) -> AuthenticationError | None:
    """Return which models could not be called for want of a key.

    A server or an image of the user's own may need none, or bring its own.
    """
    if config.api_base is not None or config.image is not None:
        return None
    secrets = {entry.partition("=")[0]: "a file" for entry in config.isolation.secrets}
    environment = {**secrets, **handed_on, **config.isolation.env}
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
