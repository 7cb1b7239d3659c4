"""Settings of runs whose workers carry out checks on a commit, and options without an effect."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.base.errors import ConfigError, mistakes
from orchestrator.config.loading.ineffective_options import without_effect
from orchestrator.config.loading.loading import load_settings
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.repository.repository import Repository


def refuse_idle_options(given: GivenSettings, *configs: ParallelConfig) -> None:
    """Check that every given option has an effect.

    Args:
        given: The settings that were given as options.
        configs: The settings of the run, or of each of its tasks.

    Raises:
        ConfigError: An option has no effect without another option.
    """
    idle = list(without_effect(given, configs))
    if idle:
        raise mistakes(
            idle,
            "add one of the required options, or remove the option",
            "command line",
            key="option.incomplete",
        )


def settings_without_tasks(repository: Repository, file: Path | None) -> ParallelConfig:
    """Return the settings from the configuration file and the environment, without options.

    Raises:
        ConfigError: The configuration is invalid.
    """
    return _load(repository, {}, file, task_needed=False)


def require_checks(config: ParallelConfig, what: str) -> tuple[str, ...]:
    """Return the commands of the checks that a configuration names, each once.

    Args:
        config: The configuration.
        what: The option or the work that needs a check, for the error message.

    Raises:
        ConfigError: The configuration names no checks.
    """
    checks = tuple(dict.fromkeys(check.run for check in config.project.checks))
    if not checks:
        raise ConfigError(
            f"{what} needs a check",
            key="check.missing",
            hint="name a command that must succeed: `--check 'make test'`",
        )
    return checks


def settings_of_checks(
    repository: Repository, commands: Sequence[str], file: Path | None
) -> ParallelConfig:
    """Return the settings of a run with one task for each command.

    Raises:
        ConfigError: The configuration is invalid.
    """
    options = {"tasks": tuple(commands), "agent_cli": "shell", "workers": "1"}
    return _load(repository, options, file, task_needed=True)


def _load(
    repository: Repository, options: Mapping[str, object], file: Path | None, *, task_needed: bool
) -> ParallelConfig:
    return load_settings(
        options=options,
        environ=os.environ,
        top=repository.top,
        file=file,
        task_needed=task_needed,
    ).config
