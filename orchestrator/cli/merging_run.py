"""Compare and merge branches with the help of containers: checks, and agents for conflicts."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import typer

from orchestrator.cli.check_settings import (
    required_checks,
    settings_of_checks,
    settings_without_tasks,
)
from orchestrator.cli.options import GivenSettings
from orchestrator.cli.output.messages import tell, tell_failure
from orchestrator.cli.signals import Interruption
from orchestrator.config.loading import load_settings
from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.git.repository import Repository
from orchestrator.landing.conflict_matrix import Conflicts
from orchestrator.landing.merged import Merged

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class MergeRequest:
    """A merge that needs containers, as the command line describes it."""

    run: str | None
    workers: tuple[int, ...]
    options: dict[str, Any]
    """Options of the merge, by the names of `MergeOptions`."""
    queue: bool
    """Whether checks test the merged commits; without `--check`, those of the configuration."""
    settings: GivenSettings
    """Settings of an agent that were given as options."""
    task: str | None = None
    """The agent's task. Default: a text that asks to resolve the conflict."""
    file: Path | None = None
    """The configuration file that the user named."""


def merge_with_containers(repository: Repository, request: MergeRequest) -> Merged:
    """Merge branches; agents, and checks of the merged commits, run in containers.

    Raises:
        OrchestratorError: There are no checks, the engine cannot be reached, or the checks fail
            on the target branch before the merge.
        typer.Exit: The command was interrupted.
    """
    merging = import_module("orchestrator.runs.merging")
    options, config = request.options, None
    if request.queue:
        checks = options["checks"] or required_checks(
            settings_without_tasks(repository, request.file), "`--queue`"
        )
        options = {**options, "checks": checks}
        config = settings_of_checks(repository, checks, request.file)
    if options["on_conflict"] == "agent":
        options = {**options, "agent": _agent_settings(repository, request)}
    merger = merging.Merger(repository.top, config=config, note=tell)
    wanted = merging.MergeOptions(**options)
    merged: Merged = _interruptible(
        merger, lambda: merger.merge(wanted, request.run, request.workers)
    )
    return merged


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
    config = settings_of_checks(repository, checks, file)
    merging = import_module("orchestrator.runs.merging")
    merger = merging.Merger(repository.top, config=config, note=tell)
    found: Conflicts = _interruptible(merger, lambda: merger.conflicts(checks, run, workers))
    return found


def _interruptible(merger: Any, work: Callable[[], Result]) -> Result:  # noqa: ANN401
    """Call `work`, which uses a merger; a signal stops the merger, so that nothing is merged."""
    with Interruption(lambda again: merger.cancel(kill=again)) as interruption:
        try:
            return work()
        except OrchestratorError as error:
            if interruption.exit_code is None:
                raise
            tell_failure(error)
            raise typer.Exit(interruption.exit_code) from error


def _agent_settings(repository: Repository, request: MergeRequest) -> ParallelConfig:
    prompt = import_module("orchestrator.runs.conflict_agent").PROMPT
    settings = {**request.settings, "tasks": (request.task or prompt,), "workers": "1"}
    config = load_settings(
        options=settings, environ=os.environ, top=repository.top, file=request.file
    ).config
    if config.agent_cli == "shell" and request.task is None:
        raise ConfigError(
            "`--agent-cli shell` runs commands, and no agent that could resolve a conflict",
            hint="name an agent program with `--agent-cli`, or a command with `--resolver-task`",
        )
    return config
