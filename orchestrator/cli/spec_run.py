"""`orchestrator spec run`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli import options
from orchestrator.cli.conduct import conduct
from orchestrator.cli.live import make_view
<<<<<<< HEAD
from orchestrator.cli.manifests import File, From, Only, Variables, selected, tell_about, variables
from orchestrator.cli.messages import show
=======
from orchestrator.cli.manifests import File, Variables, tell_about, variables
from orchestrator.cli.messages import show, tell
>>>>>>> 303c707 (spec run: --only, --from, and --after an earlier run, whose finished tasks are not done again)
from orchestrator.cli.parallel import detach_run, show_plan
from orchestrator.config import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.expansion import expand_from
from orchestrator.history import named_run
from orchestrator.record import RunDirectory, RunRecord, all_runs
from orchestrator.repository import Repository, find_top
from orchestrator.results import Status
from orchestrator.runner import ParallelRunner
from orchestrator.settings import load_settings
from orchestrator.workflow.model import Earlier, Workflow
from orchestrator.workflow.reading import read_workflow
from orchestrator.workflow.selection import missing, only, starting_at
from orchestrator.workflow.waves import wave_lines

_NOT_SETTINGS = frozenset(
<<<<<<< HEAD
    {"file", "var", "only", "from_", "config", "quiet", "json", "dry_run", "detach", "secret"}
)
=======
    {
        *("file", "var", "only", "from_", "after"),
        *("config", "quiet", "json", "dry_run", "detach", "secret"),
    }
)

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="Run this task and no other; repeatable."),
]
From = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="ID", help="Run this task and what depends on it; repeatable."),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="RUN", help="Go on from what succeeded in an earlier run; do the rest."
    ),
]
>>>>>>> 303c707 (spec run: --only, --from, and --after an earlier run, whose finished tasks are not done again)


def run(
    file: File,
    var: Variables = None,
    only: Only = None,
    from_: From = None,
<<<<<<< HEAD
=======
    after: After = None,
>>>>>>> 303c707 (spec run: --only, --from, and --after an earlier run, whose finished tasks are not done again)
    workers: options.Workers = None,
    agent_cli: options.AgentCli = None,
    model: options.Model = None,
    agent: options.Agent = None,
    image: options.Image = None,
    api_base: options.ApiBase = None,
    max_steps: options.MaxSteps = None,
    budget_per_worker: options.Budget = None,
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
    include_uncommitted: options.IncludeUncommitted = None,
    context: options.Context = None,
    retries: options.Retries = None,
    retry_delay: options.RetryDelay = None,
    stagger: options.Stagger = None,
    notify: options.Notify = None,
    fail_on: options.FailOn = None,
    config: options.Config = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    detach: options.Detach = False,
) -> None:
    """Run a workflow: every task when those it depends on are over, from what they made."""
    given = dict(locals())
    settings = _configure(given)
    earlier = None if after is None else _earlier(after)
    if earlier is not None:
        if base is not None:
            raise ConfigError("`--after` starts from where that run did: leave `--base` out")
        settings = settings.model_copy(update={"base": earlier.base, "include_uncommitted": False})
    workflow = _selected(_read(given, settings, runs=not dry_run), given, earlier)
    if workflow.network is not None and network is None:
        closed = settings.isolation.model_copy(update={"network": workflow.network})
        settings = settings.model_copy(update={"isolation": closed})
    view = make_view(quiet=quiet)
    runner = ParallelRunner(settings, emit=view, workflow=workflow)
    if dry_run:
        if not json:
            show("\n".join([*wave_lines(workflow, settings.workers), ""]))
        show_plan(runner, quiet=quiet, as_json=json)
    elif detach:
        detach_run(runner, view, quiet=quiet, as_json=json)
    else:
        code = conduct(runner, settings, view, workflow=workflow, quiet=quiet, as_json=json)
        raise typer.Exit(code)


def _configure(given: dict[str, Any]) -> ParallelConfig:
    asked = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    return load_settings(
        options={"secrets": tuple(given["secret"] or ()), **asked},
        environ=os.environ,
        top=find_top(Path.cwd()),
        file=given["config"],
        task_needed=False,
    ).config


def _read(given: dict[str, Any], settings: ParallelConfig, *, runs: bool) -> Workflow:
    whole = read_workflow(
        given["file"],
        variables=variables(given["var"] or ()),
        expand=expand_from(settings, Path.cwd(), runs=runs),
    )
    reading = selected(whole, given["only"] or (), given["from_"] or ())
    if not given["quiet"]:
        tell_about(reading)
    return reading.workflow


def _earlier(named: str) -> RunRecord:
    """Find the run that this one goes on from."""
    runs = list(all_runs(Repository(Path.cwd()).state_dir))
    record = named_run(runs, named).record()
    if record is None or record.workflow is None:
        raise ConfigError(f"run {named} is not one of a workflow", hint="`orchestrator ls`")
    return record


def _done(record: RunRecord) -> dict[str, Earlier]:
    """Give the tasks that succeeded in a run, or in those that it went on from."""
    directory = RunDirectory(Repository(record.top).state_dir / "runs" / record.run_id)
    tasks = record.workflow.tasks if record.workflow else ()
    found = {one.task: one for task in tasks for one in task.earlier}
    for spec in record.workers:
        result = directory.result(spec.worker_id)
        if spec.name and result is not None and result.status is Status.SUCCESS:
            found[spec.name] = Earlier(
                task=spec.name, run_id=record.run_id, worker_id=spec.worker_id
            )
    return found


def _selected(workflow: Workflow, given: dict[str, Any], earlier: RunRecord | None) -> Workflow:
    """Take the tasks that were asked for."""
    done = _done(earlier) if earlier is not None else {}
    if given["from_"] and earlier is not None:
        again = {task.id for task in starting_at(workflow, given["from_"]).workflow.tasks}
        done = {name: one for name, one in done.items() if name not in again}
    if done:
        workflow = missing(workflow, done)
    for select, names in ((starting_at, given["from_"]), (only, given["only"])):
        if names:
            workflow, notices = select(workflow, names)
            for notice in notices if not given["quiet"] else ():
                tell(f"notice: {notice}")
    return workflow
