"""Compare and merge branches with the help of containers: checks, and agents for conflicts."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_settings
from orchestrator.config.request import read_request
from orchestrator.faces.cli.check_settings import (
    require_checks,
    settings_of_checks,
    settings_without_tasks,
)
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.messages import tell
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.conflict_matrix import Conflicts
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import Merged
from orchestrator.runs.purposes.conflict_agent import PROMPT
from orchestrator.runs.purposes.merging import Merger


def with_checks(repository: Repository, request: MergeRequest, file: Path | None) -> MergeRequest:
    """Return a request of a merge whose commits are tested, by default with the configured checks.

    Args:
        repository: The user's repository.
        request: The request as the user gave it.
        file: The configuration file that the user named.

    Raises:
        ConfigError: There are no checks.
    """
    if request.checks:
        return request
    configured = settings_without_tasks(repository, file)
    return replace(request, checks=require_checks(configured, "`--queue`"))


def with_agent(
    repository: Repository,
    request: MergeRequest,
    settings: GivenSettings,
    task: str | None,
    file: Path | None,
) -> MergeRequest:
    """Return a request of a merge in which an agent resolves conflicts.

    Args:
        repository: The user's repository.
        request: The request as the user gave it.
        settings: The settings of the agent that were given as options.
        task: The agent's task. Default: a text that asks to resolve the conflict.
        file: The configuration file that the user named.

    Raises:
        ConfigError: A setting is invalid, or no agent was named.
    """
    options = {**settings, "tasks": (task or PROMPT,), "workers": "1"}
    config = load_settings(
        options=options, environ=os.environ, top=repository.top, file=file
    ).config
    if config.agent_cli == "shell" and task is None:
        raise ConfigError(
            "`--agent-cli shell` runs commands, and no agent that could resolve a conflict",
            key="agent.unsuitable",
            hint="name an agent program with `--agent-cli`, or a command with `--resolver-task`",
        )
    return replace(request, agent=config)


def merge_with_containers(
    repository: Repository,
    request: MergeRequest,
    run: str | None,
    workers: Sequence[int],
    file: Path | None,
) -> Merged:
    """Merge branches; agents, and checks of the merged commits, run in containers.

    Args:
        repository: The user's repository.
        request: How the branches are merged.
        run: The run's id, or the beginning of it.
        workers: Numbers of the workers.
        file: The configuration file that the user named.

    Raises:
        OrchestratorError: The engine cannot be reached, or the checks fail on the target branch
            before the merge.
        typer.Exit: The command was interrupted.
    """
    checks = request.checks
    config = settings_of_checks(repository, checks, file) if checks else None
    merger = Merger(repository.top, config=config, note=tell)
    return run_interruptibly(
        lambda: merger.merge(request, run, workers),
        lambda again: merger.cancel(kill=again),
        keeps_result=True,
    )


def find_tested_conflicts(
    repository: Repository,
    run: str | None,
    workers: Sequence[int],
    checks: Sequence[str],
    file: Path | None,
) -> Conflicts:
    """Return the conflicts of a run's branches, also those that only the checks find.

    Args:
        repository: The user's repository.
        run: The run's id, or the beginning of it.
        workers: Numbers of the workers.
        checks: Commands that must succeed.
        file: The configuration file that was named.

    Raises:
        OrchestratorError: The engine cannot be reached, or the checks fail on the base.
        typer.Exit: The command was interrupted.
    """
    checks = read_request(MergeRequest, {"checks": tuple(checks)}).checks
    config = settings_of_checks(repository, checks, file)
    merger = Merger(repository.top, config=config, note=tell)
    return run_interruptibly(
        lambda: merger.conflicts(checks, run, workers),
        lambda again: merger.cancel(kill=again),
        keeps_result=True,
    )
