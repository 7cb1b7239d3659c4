"""Check that an agent program can honour the settings of a run."""

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.agents import load_agent
from orchestrator.agents.base import (
    LONGEST_LINE,
    LONGEST_WORD,
    Agent,
    AgentSettings,
)
from orchestrator.base.errors import AuthenticationError, ConfigError
from orchestrator.base.text.sanitize import is_text, one_line
from orchestrator.config.derived import with_isolation
from orchestrator.config.settings.company import Company
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import plan_workers
from orchestrator.network.broker.keys import BASE_URLS, takes_keys


def choose_agent(config: ParallelConfig, agent: Agent | None) -> tuple[Agent, str]:
    """Return the adapter of the agent program, and the name of the image that the program runs in.

    Raises:
        ConfigError: No installed package offers the agent program.
    """
    chosen = agent or load_agent(config.agent_cli)
    return chosen, config.image or chosen.image


def with_needed_broker(
    config: ParallelConfig, agent: Agent, inherited_env: Mapping[str, str]
) -> ParallelConfig:
    """Return the settings, with `--keys env` if preset `untrusted` needs no credential broker."""
    given = {**inherited_env, **config.isolation.env}
    needed = takes_keys(agent.inherited_env, given) or config.isolation.git_read
    if config.preset != "untrusted" or needed:
        return config
    return with_isolation(config, keys="env")


def check_supported(config: ParallelConfig, agent: Agent) -> None:
    """Check that no setting of the run is ignored by the agent program.

    Raises:
        ConfigError: Neither the program nor the orchestrator can enforce a setting.
    """
    settings = AgentSettings.of(config)
    if config.isolation.keys == "broker":
        # The broker measures and enforces budgets and token limits.
        settings = replace(settings, budget=None, tokens=None)
    unsupported = agent.unsupported(settings)
    if unsupported is not None:
        if config.budget_per_worker is None:
            unsupported = unsupported.replace("`--budget-per-worker`", "`--budget-total`")
        if config.tokens_per_worker is None:
            unsupported = unsupported.replace("`--tokens-per-worker`", "`--tokens-total`")
        raise ConfigError(
            f"`{agent.name}` does not support {unsupported}",
            key="agent.option-unsupported",
            hint="remove the option, or choose another program with `--agent-cli`",
        )


def check_length(config: ParallelConfig, agent: Agent) -> None:
    """Check that no task or variable is too long for the command line of the agent program.

    Raises:
        ConfigError: An argument, a variable or the total of all is too long.
    """
    settings = AgentSettings.of(config)
    for spec in plan_workers(config):
        # Called once here so that an adapter's failure shows before anything is created.
        command = agent.command(spec, settings)
        env = {**command.env, **config.isolation.env}
        variables = {name: _size(f"{name}={value}") for name, value in env.items()}
        words = [_size(word) for word in command.argv]
        longest = max(variables, key=lambda name: variables[name], default=None)
        # protection: length-of-variables-limited
        if longest is not None and variables[longest] > LONGEST_WORD:
            raise ConfigError(
                f"variable `{one_line(longest, limit=60)}` has {variables[longest]} bytes, "
                f"but a program accepts {LONGEST_WORD} at most",
                key="variable.too-long",
                hint="pass the value in a file: `--secret NAME=@FILE`, `--copy FILE`, or a file "
                "of a commit",
            )
        # protection: length-of-arguments-limited
        if max(words) > LONGEST_WORD:
            raise ConfigError(
                f"a task is too long: an argument of `{agent.name}` would have {max(words)} bytes, "
                f"but a program accepts {LONGEST_WORD} at most",
                key="task.too-long",
                hint="put the text into a file of the repository, and name the file in the task",
            )
        # protection: length-of-command-line-limited
        if sum(words) + sum(variables.values()) > LONGEST_LINE:
            raise ConfigError(
                f"a task and the variables have {sum(words) + sum(variables.values())} "
                f"bytes together, but a program accepts {LONGEST_LINE} at most",
                key="command-line.too-long",
                hint="put the text into a file of the repository, and name the file in the task",
            )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def user_variables(
    config: ParallelConfig, agent: Agent, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the user's environment variables for the agent program and the credential broker.

    Raises:
        ConfigError: A variable is not UTF-8 text.
    """
    names = (
        *agent.inherited_env,
        *(repository.variable for repository in config.isolation.private_repositories),
        *Company.parse(config.isolation.company).sources,
        # The broker, and not the program, connects to these servers.
        *(BASE_URLS if config.isolation.keys == "broker" else ()),
    )
    found = {name: environ[name] for name in names if name in environ}
    for name, value in found.items():
        if not is_text(value):
            raise ConfigError(
                f"environment variable `{name}` is not UTF-8 text",
                key="variable.encoding",
                hint="workers would get the variable: set it to valid text, or unset it",
            )
    return found


def missing_keys(
    config: ParallelConfig, agent: Agent, inherited_env: Mapping[str, str]
) -> AuthenticationError | None:
    """Return an error with the models whose API key is missing; None if no key is missing.

    With `--api-base` or `--image`, nothing is checked: a user's own server may need no key, and an
    image may contain the key.
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
        key="api-key.missing",
        hint=f"`export {next(iter(needs.values()))}=...`, or pass the key with `--env-file "
        "FILE`; use `--api-base URL` for your own server",
    )
