"""`orchestrator spec run`."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import options
from orchestrator.cli.commands.parallel import asked_of, do, fetch_base
from orchestrator.cli.output.messages import show, tell, tell_failure
from orchestrator.cli.output.views import make_view
from orchestrator.cli.previous_run import earlier_run, without_done
from orchestrator.cli.signals import Interruption
from orchestrator.cli.spec_arguments import (
    File,
    From,
    Only,
    Variables,
    selected,
    tell_about,
    variables,
)
from orchestrator.cli.turns import turn
from orchestrator.config.fields import CONTAINER_FIELDS
from orchestrator.config.loading import Settings, load_settings
from orchestrator.config.run import ParallelConfig
from orchestrator.config.sizing import fits, this_machine
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.events import Emit, Notice
from orchestrator.git.repository import find_top
from orchestrator.runs.foreach_items import Expansion
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_record import RunRecord
from orchestrator.text.sanitize import one_line
from orchestrator.workflow.contents import with_digests
from orchestrator.workflow.drawing.waves import wave_lines
from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.parsing.reader import Reading, read_workflow
from orchestrator.workflow.planning import demand_of, run_config

_NOT_SETTINGS = frozenset(
    {
        *("file", "var", "only", "from_", "after"),
        *("config", "quiet", "json", "dry_run", "detach", "secret"),
        *("summary", "when_busy", "at_once", "fetch"),
    }
)
_NOT_OF_WORKFLOWS = {
    "tasks": "leave it out: the workflow file lists the tasks",
    "models": "use `model`, in the workflow file for each task or here for all of them",
}
"""Settings that a workflow would ignore, and what to do instead."""

After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="RUN", help="Go on from what succeeded in an earlier run; do the rest."
    ),
]


def run(
    file: File,
    var: Variables = None,
    only: Only = None,
    from_: From = None,
    after: After = None,
    workers: options.Workers = None,
    at_once: options.AtOnce = None,
    agent_cli: options.AgentCli = None,
    model: options.Model = None,
    agent: options.Agent = None,
    image: options.Image = None,
    api_base: options.ApiBase = None,
    max_steps: options.MaxSteps = None,
    budget_per_worker: options.Budget = None,
    tokens_per_worker: options.TokensPerWorker = None,
    budget_total: options.BudgetTotal = None,
    tokens_total: options.TokensTotal = None,
    timeout_per_worker: options.Timeout = None,
    preset: options.Preset = None,
    cpus: options.Cpus = None,
    memory: options.Memory = None,
    network: options.Network = None,
    allow: options.Allow = None,
    env: options.Env = None,
    env_file: options.EnvFile = None,
    secret: options.Secret = None,
    checks: options.Check = None,
    base: options.Base = None,
    fetch: options.Fetch = False,
    worktree_dir: options.WorktreeDir = None,
    branch: options.Branch = None,
    include_uncommitted: options.IncludeUncommitted = None,
    context: options.Context = None,
    retries: options.Retries = None,
    retry_delay: options.RetryDelay = None,
    rate_limit_wait: options.RateLimitWait = None,
    stagger: options.Stagger = None,
    notify: options.Notify = None,
    fail_on: options.FailOn = None,
    config: options.Config = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    summary: options.Summary = False,
    when_busy: options.WhenBusy = None,
    dry_run: options.DryRun = False,
    detach: options.Detach = False,
) -> None:
    """Run a workflow: every task when those it depends on are over, from what they made."""
    given = dict(locals())
    with turn(given):
        configured = _configure(given)
        settings = configured.config
        earlier = None if after is None else earlier_run(after)
        if earlier is not None:
            if base is not None:
                raise ConfigError("`--after` starts from where that run did: leave `--base` out")
            settings = settings.model_copy(
                update={"base": earlier.base, "include_uncommitted": False}
            )
        fetch_base(given, settings.base)
        workflow = _read(given, settings, earlier, runs=not dry_run)
        _check_networks(configured, workflow)
        if settings.auto_workers:
            workers_now = run_config(settings, workflow).workers
            settings = settings.model_copy(update={"workers": workers_now})
        view = make_view(quiet=quiet)
        programs = _programs(given, settings, workflow)
        runner = ParallelRunner(settings, emit=view, workflow=workflow, programs=programs)
        if dry_run and not json:
            show("\n".join([*_waves(settings, workflow, programs), ""]))
        do(runner, settings, view, given, workflow=workflow)


def _check_networks(settings: Settings, workflow: Workflow) -> None:
    """Check that a workflow and the settings of the run do not ask for opposite networks.

    Raises:
        ConfigError: A setting opens a network of a private workflow, or a task opens the network
            that an option or a variable closes. A file's `none` is a default, which tasks override.
    """
    if workflow.network == "none":
        for name in ("network", "setup_network", "check_network"):
            for setting in settings.given(CONTAINER_FIELDS[name])[-1:]:
                if setting.value == "open":
                    raise ConfigError(
                        f"{setting.label} is `open`, but `policy.constraints.privacy` of the "
                        "workflow is `private`",
                        hint="leave it out, or take `privacy: private` out of the workflow",
                    )
    opened = [task.id for task in workflow.tasks if task.settings.network == "open"]
    for setting in settings.given(CONTAINER_FIELDS["network"])[-1:] if opened else ():
        if setting.kind != "file" and setting.value == "none":
            raise ConfigError(
                f"{setting.label} is `none`, but `network` of task `{opened[0]}` is `open`",
                hint="leave it out, or take `network: open` out of the task",
            )


def _waves(
    settings: ParallelConfig, workflow: Workflow, programs: dict[str, ParallelConfig]
) -> list[str]:
    """Return what would run at one time, as far as this machine has room for it."""
    machine = this_machine()
    set_aside = {
        task.id: demand_of(settings, task, programs, cpus=machine.cpus) for task in workflow.tasks
    }

    def has_room(task: Task, running: Collection[Task]) -> bool:
        demands = [set_aside[one.id] for one in (*running, task)]
        return fits(demands, cpus=machine.cpus, memory=machine.memory)

    return wave_lines(workflow, run_config(settings, workflow).workers, has_room)


def _configure(given: dict[str, Any]) -> Settings:
    asked = asked_of(given, _NOT_SETTINGS)
    settings = load_settings(
        options={"secrets": tuple(given["secret"] or ()), **asked},
        environ=os.environ,
        top=find_top(Path.cwd()),
        file=given["config"],
        task_needed=False,
    )
    for name, instead in _NOT_OF_WORKFLOWS.items():
        for setting in settings.given((name,)):
            raise ConfigError(
                f"{setting.label} is for `orchestrator parallel` alone: a workflow has its own "
                f"{name}",
                hint=f"{instead}, or name another file with `--config`",
            )
    return settings


def _programs(
    given: dict[str, Any], settings: ParallelConfig, workflow: Workflow
) -> dict[str, ParallelConfig]:
    """Return what the configuration says of tasks' own agent programs."""
    names = {task.settings.agent_cli for task in workflow.tasks} - {None, settings.agent_cli}
    return {
        name: _configure({**given, "agent_cli": name}).config
        for name in sorted(filter(None, names))
    }


def _read(
    given: dict[str, Any], settings: ParallelConfig, earlier: RunRecord | None, *, runs: bool
) -> Workflow:
    whole = _expanded(given, settings, runs=runs)
    whole = replace(whole, workflow=with_digests(whole.workflow))
    if earlier is not None:
        whole = without_done(whole, earlier, given["from_"] or ())
    reading = selected(whole, given["only"] or (), given["from_"] or ())
    if not given["quiet"]:
        tell_about(reading)
    return with_digests(reading.workflow)


def _expanded(given: dict[str, Any], settings: ParallelConfig, *, runs: bool) -> Reading:
    """Read the file, and run the commands of its `foreach`; a signal stops them in good order."""

    @contextmanager
    def watch(command: str) -> Iterator[Emit]:
        with make_view(quiet=given["quiet"]) as view:
            view(Notice(message=f"listing items: {one_line(command, limit=100)}"))
            yield view

    expansion = Expansion(settings, Path.cwd(), watch=watch, runs=runs)

    def stop(again: bool) -> None:
        expansion.cancel(kill=again)
        tell("stopping: the command that lists items is ended")

    with Interruption(stop) as interruption:
        try:
            return read_workflow(
                given["file"],
                variables=variables(given["var"] or ()),
                expand=expansion.expand(),
            )
        except OrchestratorError as error:
            if interruption.exit_code is None:
                raise
            tell_failure(error)
        finally:
            if interruption.exit_code is not None:
                raise typer.Exit(interruption.exit_code)
    raise AssertionError("what was interrupted has exited")
