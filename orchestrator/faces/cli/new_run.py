"""Configure a run, then print its plan, start it in the background, or execute it."""

import os
from json import dumps
from pathlib import Path

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.loading.loading import Settings, load_settings
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Workflow
from orchestrator.faces.cli.foreground import run_in_foreground
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.output.views import View
from orchestrator.faces.cli.run_options import RunOptions
from orchestrator.repository.repository import Repository, find_top
from orchestrator.runs.runner import ParallelRunner

_UNCHECKED = "not checked: engine, images and capacity of the machine (use `orchestrator doctor`)"


def configure(given: GivenSettings, run: RunOptions, *, task_needed: bool = True) -> Settings:
    """Return the settings of a run from its options, the environment and the configuration file.

    Raises:
        ConfigError: Settings are invalid. The message lists all problems.
    """
    settings = load_settings(
        options={**given, "env_file": tuple(run.env_file or ())},
        environ=os.environ,
        top=find_top(Path.cwd()),
        file=run.config,
        task_needed=task_needed,
    )
    if settings.ignored and not run.quiet:
        keys = ", ".join(f"`{one_line(key, limit=60)}`" for key in settings.ignored)
        tell(f"keys of the file of AutomatosX have no effect here: {keys}")
    return settings


def fetch_base(run: RunOptions, base: str) -> None:
    """Fetch the base from its remote with git, if `--fetch` was given.

    Raises:
        ConfigError: The base is not a branch of a remote.
        RepositoryError: Git could not fetch.
    """
    if run.fetch and not run.dry_run:
        Repository(Path.cwd()).fetch(base)


def start(
    runner: ParallelRunner,
    config: ParallelConfig,
    view: View,
    run: RunOptions,
    *,
    workflow: Workflow | None = None,
) -> None:
    """Start a run in the background, execute it, or print its plan, as the options in `run` ask.

    Raises:
        ConfigError: Two options exclude each other.
        typer.Exit: With the exit code of a run that was executed.
    """
    _check_combination(run)
    if run.dry_run:
        # Imported here because other runs need no table of the plan.
        from orchestrator.faces.cli.output.dry_run import plan_json, plan_table

        plan = runner.plan()
        if not run.quiet:
            for notice in plan.notices:
                tell(notice)
        if run.json:
            show_json(plan_json(plan))
        else:
            show(plan_table(plan))
        if not run.quiet:
            tell(_UNCHECKED)
    elif run.detach:
        _detach(runner, view, run)
    else:
        raise typer.Exit(run_in_foreground(runner, config, view, run, workflow=workflow))


def _check_combination(run: RunOptions) -> None:
    if run.dry_run and run.detach:
        raise ConfigError(
            "`--dry-run` and `--detach` cannot be used together",
            key="option.conflict",
            hint="remove one of the two options",
        )
    if run.report and (run.dry_run or run.detach):
        raise ConfigError(
            "`--report` cannot be used with `--dry-run` or `--detach`",
            key="option.conflict",
            hint="after the run's end: `orchestrator report RUN --report FORMAT=FILE`",
        )
    if run.events and (run.dry_run or run.detach):
        raise ConfigError(
            "`--events` cannot be used with `--dry-run` or `--detach`",
            key="option.conflict",
            hint="follow a run in the background with `orchestrator events -f`",
        )
    if run.timings and (run.dry_run or run.detach):
        raise ConfigError(
            "`--timings` cannot be used with `--dry-run` or `--detach`",
            key="option.conflict",
            hint="remove `--timings`, or the other option",
        )
    if run.next_step and (run.dry_run or run.detach or run.events or run.summary):
        hint = "`orchestrator judge`, then `orchestrator pick`"
        raise ConfigError(
            f"`{'--pick' if run.pick else '--land'}` cannot be used with `--dry-run`, `--detach`, "
            "`--events` or `--summary`",
            key="option.conflict",
            hint=f"after the run's end: {hint if run.pick else '`orchestrator merge`'}",
        )
    if run.summary and (run.json or run.dry_run or run.detach):
        raise ConfigError(
            "`--summary` cannot be used with `--json`, `--dry-run` or `--detach`",
            key="option.conflict",
            hint="remove one of the two options",
        )


def _detach(runner: ParallelRunner, view: View, run: RunOptions) -> None:
    # Imported here because other runs stay in the foreground.
    from orchestrator.runs.resuming.detach import continue_in_background

    with view:
        directory = runner.reserve()
    try:
        continue_in_background(directory, top=find_top(Path.cwd()))
    finally:
        directory.release()
    if run.json:
        show_json(dumps({"run_id": directory.run_id}))
    else:
        show(directory.run_id)
    if not run.quiet:
        tell(
            f"the run continues in the background: `orchestrator watch {directory.run_id}`, "
            f"`orchestrator wait {directory.run_id}`, `orchestrator stop --all`"
        )
