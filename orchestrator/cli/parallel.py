"""`orchestrator parallel`."""

import os
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli import options
from orchestrator.cli.interruption import Interruption
from orchestrator.cli.live import View, make_view
from orchestrator.cli.messages import show, tell, tell_failure
from orchestrator.cli.report import after_run, plan_json, plan_table, run_json, run_table
from orchestrator.config import ParallelConfig
from orchestrator.errors import OrchestratorError
from orchestrator.events import Notice
from orchestrator.repository import find_top
from orchestrator.results import RunResult, exit_code
from orchestrator.runner import ParallelRunner
from orchestrator.settings import load_config

_NOT_SETTINGS = frozenset({"positional", "task", "config", "quiet", "json", "dry_run", "secret"})

_UNCHECKED = "the engine, its images and the machine's size were not checked: `orchestrator doctor`"


def parallel(
    positional: options.Positional = None,
    task: options.Task = None,
    workers: options.Workers = None,
    models: options.Models = None,
    agent: options.Agent = None,
    budget_per_worker: options.Budget = None,
    timeout_per_worker: options.Timeout = None,
    quiet: options.Quiet = False,
    config: options.Config = None,
    api_base: options.ApiBase = None,
    max_steps: options.MaxSteps = None,
    agent_cli: options.AgentCli = None,
    image: options.Image = None,
    preset: options.Preset = None,
    cpus: options.Cpus = None,
    memory: options.Memory = None,
    pids: options.Pids = None,
    disk: options.Disk = None,
    inodes: options.Inodes = None,
    log_limit: options.LogLimit = None,
    idle_timeout: options.IdleTimeout = None,
    grace: options.Grace = None,
    runtime: options.Runtime = None,
    network: options.Network = None,
    allow: options.Allow = None,
    env: options.Env = None,
    env_file: options.EnvFile = None,
    secret: options.Secret = None,
    ports: options.Ports = None,
    base: options.Base = None,
    include_uncommitted: options.IncludeUncommitted = None,
    fail_on: options.FailOn = None,
    json: options.Json = False,
    dry_run: options.DryRun = False,
) -> None:
    """Run tasks at once, each worker in its own git worktree and container."""
    given = dict(locals())
    settings = _configure(given)
    if dry_run:
        _show_plan(settings, quiet=quiet, as_json=json)
    else:
        raise typer.Exit(_run(settings, quiet=quiet, as_json=json))


def _configure(given: dict[str, Any]) -> ParallelConfig:
    tasks = ([given["positional"]] if given["positional"] is not None else []) + (
        given["task"] or []
    )
    asked = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    return load_config(
        options={"tasks": tuple(tasks), "secrets": tuple(given["secret"] or ()), **asked},
        environ=os.environ,
        top=find_top(Path.cwd()),
        file=given["config"],
    )


def _show_plan(config: ParallelConfig, *, quiet: bool, as_json: bool) -> None:
    plan = ParallelRunner(config).plan()
    if not quiet:
        for notice in plan.notices:
            tell(notice)
    show(plan_json(plan) if as_json else plan_table(plan))
    if not quiet:
        tell(_UNCHECKED)


def _run(config: ParallelConfig, *, quiet: bool, as_json: bool) -> int:
    view = make_view(quiet=quiet)
    runner = ParallelRunner(config, emit=view)

    def stop(again: bool) -> None:
        runner.cancel(kill=again)
        view(Notice(message=_stopping(config, again=again)))

    with Interruption(stop) as interruption:
        try:
            result = _execute(runner, view)
        except OrchestratorError as error:
            if interruption.exit_code is None:
                raise
            tell_failure(error)
            return interruption.exit_code
        _show_result(result, quiet=quiet, as_json=as_json)
    return interruption.exit_code or exit_code(result.results, fail_on=config.fail_on)


def _execute(runner: ParallelRunner, view: View) -> RunResult:
    with view:
        return runner.execute()


def _stopping(config: ParallelConfig, *, again: bool) -> str:
    if again:
        return "killing the containers"
    return f"stopping: workers get {config.limits.grace:g} s to end; interrupt again to kill them"


def _show_result(result: RunResult, *, quiet: bool, as_json: bool) -> None:
    show(run_json(result) if as_json else run_table(result))
    if not quiet:
        tell(after_run(result))
