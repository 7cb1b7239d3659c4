"""Settings of runs whose workers carry out checks on a commit."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.config.loading import load_settings
from orchestrator.config.run import ParallelConfig
from orchestrator.git.repository import Repository
from orchestrator.judging.check_run import check_commands


def settings_without_tasks(repository: Repository, file: Path | None) -> ParallelConfig:
    """Return the settings from the configuration file and the environment, without options.

    Raises:
        ConfigError: The configuration is invalid.
    """
    return _load(repository, {}, file, task_needed=False)


def configured_checks(repository: Repository, file: Path | None) -> tuple[str, ...]:
    """Return the commands of the checks that the configuration names.

    Raises:
        ConfigError: The configuration is invalid.
    """
    config = settings_without_tasks(repository, file)
    return tuple(check.run for check in config.project.checks)


def settings_of_checks(
    repository: Repository, commands: Sequence[str], file: Path | None, *, workers: int
) -> ParallelConfig:
    """Return the settings of a run with one task for each command.

    Raises:
        ConfigError: The configuration is invalid, or a command is empty.
    """
    check_commands(commands)
    options = {"tasks": tuple(commands), "agent_cli": "shell", "workers": str(workers)}
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
