"""Run a workflow file: read it, check it, and start its run."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from orchestrator.base.errors import ConfigError, OrchestratorError, mistakes
from orchestrator.base.events import Emit, Notice
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.derived import with_changes
from orchestrator.config.fields import CONTAINER_FIELDS, is_size
from orchestrator.config.loading.bounds import value_of, value_text
from orchestrator.config.loading.loading import WIDER_HINT, Settings
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.sizing import fits, this_machine
from orchestrator.config.workflow.contents import with_digests
from orchestrator.config.workflow.drawing.text import wave_lines
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.config.workflow.parsing.reader import Reading, read_workflow
from orchestrator.config.workflow.planning import TASK_KEYS, config_of, demand_of, run_config
from orchestrator.faces.cli.check_settings import refuse_idle_options
from orchestrator.faces.cli.new_run import (
    configure,
    fetch_base,
    start,
)
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.faces.cli.output.views import make_view
from orchestrator.faces.cli.previous_run import earlier_run, with_earlier_base, without_done
from orchestrator.faces.cli.run_options import RunOptions, SeveralRunOptions, one_at_a_time
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.faces.cli.spec_arguments import NOT_OF_WORKFLOWS, WorkflowOptions
from orchestrator.faces.cli.when_busy import turn
from orchestrator.faces.cli.workflow_file import select_part, tell_about, variables
from orchestrator.runs.purposes.foreach_items import Expansion
from orchestrator.runs.runner import ParallelRunner


def run_workflow(
    settings: GivenSettings, run_options: SeveralRunOptions, part: WorkflowOptions
) -> None:
    """Run the selected part of a workflow file."""
    given = one_at_a_time(settings, run_options)
    with turn(run_options):
        configured = _configure(given, run_options)
        config = configured.config
        earlier = None if part.after is None else earlier_run(part.after)
        if earlier is not None:
            config = with_earlier_base(config, earlier, base_given="base" in given)
        fetch_base(run_options, config.base)
        whole = _expand(part, config, run_options)
        whole = replace(whole, workflow=with_digests(whole.workflow))
        if earlier is not None:
            programs = _programs(whole.workflow, config, given, run_options)
            whole = without_done(whole, earlier, part.from_ or (), config, programs)
        reading = select_part(whole, part.only or (), part.from_ or ())
        if not run_options.quiet:
            tell_about(reading)
        reading = replace(reading, workflow=with_digests(reading.workflow))
        workflow = reading.workflow
        # protection: private-workflow-opened-by-no-option
        _check_networks(configured, workflow)
        if config.auto_workers:
            workers_now = run_config(config, workflow).workers
            config = with_changes(config, workers=workers_now)
        programs = _programs(workflow, config, given, run_options)
        tasks = {task.id: config_of(config, task, programs) for task in workflow.tasks}
        # protection: no-task-beyond-what-was-typed
        _check_bounds(configured, reading, tasks)
        refuse_idle_options(given, config, *tasks.values())
        if run_options.has_next_step:
            # Imported here because no other run is judged or merged.
            from orchestrator.faces.cli.after_run import with_next_step

            run_options = with_next_step(config, run_options)
        view = make_view(quiet=run_options.quiet, events=run_options.events)
        runner = ParallelRunner(config, emit=view, workflow=workflow, programs=programs)
        if run_options.dry_run and not run_options.json:
            show("\n".join([*_waves(config, workflow, programs), ""]))
        start(runner, config, view, run_options, workflow=workflow)


def _programs(
    workflow: Workflow, config: ParallelConfig, given: GivenSettings, run_options: SeveralRunOptions
) -> dict[str, ParallelConfig]:
    """Return the settings of the agent programs that only some tasks use, by name."""
    names = {task.settings.agent_cli for task in workflow.tasks} - {None, config.agent_cli}
    return {
        name: _configure({**given, "agent_cli": name}, run_options).config
        for name in sorted(filter(None, names))
    }


def _check_networks(settings: Settings, workflow: Workflow) -> None:
    """Check that the settings of a run open no network of a private workflow.

    Raises:
        ConfigError: A setting opens a network although the workflow has `privacy: private`.
    """
    if workflow.network == "none":
        for name in ("network", "setup_network", "check_network"):
            for setting in settings.settings_of(CONTAINER_FIELDS[name])[-1:]:
                if setting.value != "none":
                    raise ConfigError(
                        f"{setting.label} is `{setting.value}`, but `policy.constraints.privacy` "
                        "of the workflow is `private`",
                        key="privacy.violated",
                        hint="remove the setting, or `privacy: private` from the workflow",
                    )


def _check_bounds(
    settings: Settings, reading: Reading, tasks: Mapping[str, ParallelConfig]
) -> None:
    """Check that no task gets more than the user typed as an option or variable.

    In a configuration file, a setting is only a default, which a task of the workflow can override.

    Args:
        settings: The settings of the run.
        reading: The parsed workflow file.
        tasks: The settings of each task, by id.

    Raises:
        ConfigError: A task's settings grant more than those that the user typed.
    """
    bound = settings.bound
    problems: dict[tuple[str, str], str] = {}
    for name, config in tasks.items():
        for field, blamed in bound.excesses(config):
            key = TASK_KEYS.get(blamed, ".".join(blamed))
            value = value_text(value_of(config, blamed), in_bytes=is_size(blamed))
            is_text = f" is `{value}`" if key not in ("services", "checks") else ""
            place = reading.places[name].get(key, str(reading.file))
            text = f"{place}: `{key}` of task `{name}`{is_text}, but {bound.reason(field)}"
            problems.setdefault((name, key), one_line(text, limit=400))
    if problems:
        raise mistakes([*problems.values()], WIDER_HINT, "workflow", key="limits.widened")


def _waves(
    settings: ParallelConfig, workflow: Workflow, programs: dict[str, ParallelConfig]
) -> list[str]:
    """Return a line per wave (tasks independent of each other), with how many run at a time."""
    machine = this_machine()
    set_aside = {
        task.id: demand_of(settings, task, programs, cpus=machine.cpus) for task in workflow.tasks
    }

    def shortage(task: Task, running: Collection[Task]) -> str | None:
        demands = [set_aside[other.id] for other in (*running, task)]
        return None if fits(demands, cpus=machine.cpus, memory=machine.memory) else "no room"

    return wave_lines(workflow, run_config(settings, workflow).workers, shortage)


def _configure(given: GivenSettings, run_options: RunOptions) -> Settings:
    settings = configure(given, run_options, task_needed=False)
    for name, instead in NOT_OF_WORKFLOWS.items():
        for setting in settings.settings_of((name,)):
            raise ConfigError(
                f"{setting.label} is only for `orchestrator parallel`: a workflow has its own "
                f"{name}",
                key="setting.unsuitable",
                hint=f"{instead}, or use another file with `--config`",
            )
    return settings


def _expand(part: WorkflowOptions, config: ParallelConfig, run_options: RunOptions) -> Reading:
    """Read the workflow file, and run its commands that list the items of a `foreach`.

    A signal ends such a command gracefully.
    """

    @contextmanager
    def watch(command: str) -> Iterator[Emit]:
        with make_view(quiet=run_options.quiet) as view:
            shown = one_line(command, limit=100)
            view(Notice(message=f"listing the items of `foreach`: {shown}"))
            yield view

    expansion = Expansion(config, Path.cwd(), watch=watch, runs=not run_options.dry_run)
    is_stopped = False

    def stop(again: bool) -> None:
        nonlocal is_stopped
        is_stopped = True
        expansion.cancel(kill=again)
        tell("stopping: ending the command that lists the items of `foreach`")

    def read() -> Reading:
        try:
            return read_workflow(
                part.file,
                variables=variables(part.var or ()),
                expand=expansion.expand(),
            )
        except OrchestratorError as error:
            if is_stopped:
                # The signal is the cause; the file has no mistake that a hint could help with.
                error.hint = None
            raise

    return run_interruptibly(read, stop)
