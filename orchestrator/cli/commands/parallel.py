"""`orchestrator parallel`."""

import os
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli import options
from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.output.dry_run import plan_json, plan_table
from orchestrator.cli.output.messages import show, show_json, tell
from orchestrator.cli.output.views import View, make_view
from orchestrator.cli.turns import turn
from orchestrator.config.loading import load_config, mistakes
from orchestrator.config.needs import without_effect
from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository, find_top
from orchestrator.runs.detach import go_on_in_background
from orchestrator.runs.runner import ParallelRunner
from orchestrator.workflow.model import Workflow

_NOT_SETTINGS = frozenset(
    {
        *("positional", "task", "config", "quiet", "json", "dry_run", "detach", "secret"),
        *("summary", "when_busy", "at_once", "fetch"),
    }
)

_UNCHECKED = "the engine, its images and the machine's size were not checked: `orchestrator doctor`"


def parallel(
    positional: options.Positional = None,
    task: options.Task = None,
    workers: options.Workers = None,
    at_once: options.AtOnce = None,
    models: options.Models = None,
    model: options.Model = None,
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
    read_only: options.ReadOnly = None,
    env: options.Env = None,
    env_file: options.EnvFile = None,
    secret: options.Secret = None,
    ports: options.Ports = None,
    copy: options.Copy = None,
    services: options.Services = None,
    dotenv: options.Dotenv = None,
    caches: options.Caches = None,
    setup: options.Setup = None,
    setup_timeout: options.SetupTimeout = None,
    setup_network: options.SetupNetwork = None,
    teardown: options.Teardown = None,
    checks: options.Check = None,
    check_network: options.CheckNetwork = None,
    tokens_per_worker: options.TokensPerWorker = None,
    budget_total: options.BudgetTotal = None,
    tokens_total: options.TokensTotal = None,
    base: options.Base = None,
    fetch: options.Fetch = False,
    worktree_dir: options.WorktreeDir = None,
    branch: options.Branch = None,
    include_uncommitted: options.IncludeUncommitted = None,
    context: options.Context = None,
    retries: options.Retries = None,
    retry_delay: options.RetryDelay = None,
    retry_on: options.RetryOn = None,
    retry_from: options.RetryFrom = None,
    rate_limit_wait: options.RateLimitWait = None,
    stagger: options.Stagger = None,
    fail_fast: options.FailFast = None,
    silence: options.Silence = None,
    repeated_errors: options.RepeatedErrors = None,
    prompts: options.Prompts = None,
    paths: options.Paths = None,
    enforce: options.Enforce = None,
    on_trigger: options.OnTrigger = None,
    notify: options.Notify = None,
    fail_on: options.FailOn = None,
    json: options.Json = False,
    summary: options.Summary = False,
    when_busy: options.WhenBusy = None,
    dry_run: options.DryRun = False,
    detach: options.Detach = False,
) -> None:
    """Run tasks at once, each worker in its own git worktree and container."""
    given = dict(locals())
    settings = _configure(given)
    with turn(given):
        fetch_base(given, settings.base)
        view = make_view(quiet=quiet)
        runner = ParallelRunner(settings, emit=view)
        do(runner, settings, view, given)


def _configure(given: dict[str, Any]) -> ParallelConfig:
    if given["positional"] is not None and not given["positional"].strip():
        raise ConfigError(
            "argument TASK must not be empty",
            hint="write the task in quotes, or name tasks with `--task` alone",
        )
    tasks = ([given["positional"]] if given["positional"] is not None else []) + (
        given["task"] or []
    )
    asked = asked_of(given, _NOT_SETTINGS)
    config = load_config(
        options={"tasks": tuple(tasks), "secrets": tuple(given["secret"] or ()), **asked},
        environ=os.environ,
        top=find_top(Path.cwd()),
        file=given["config"],
    )
    idle = list(without_effect(asked, config))
    if idle:
        raise mistakes(idle, "give what it needs, or leave it out", "command line")
    return config


def asked_of(given: Mapping[str, Any], others: frozenset[str]) -> dict[str, Any]:
    """Return the options that are settings; `--no-parallel` is one worker.

    Args:
        given: All options.
        others: Names of options that are no settings.

    Raises:
        ConfigError: `--no-parallel` and `--workers` say different things.
    """
    asked = {name: value for name, value in given.items() if name not in others}
    if given["at_once"] is False:
        if given["workers"] not in (None, "1"):
            raise ConfigError(
                "`--no-parallel` and `--workers` do not go together",
                hint="`--no-parallel` is `--workers 1`",
            )
        asked["workers"] = "1"
    return asked


def fetch_base(given: Mapping[str, Any], base: str) -> None:
    """Fetch from the remote of the base, where that is asked for.

    Raises:
        ConfigError: The base is of no remote.
        RepositoryError: Git could not fetch.
    """
    if given["fetch"] and not given["dry_run"]:
        Repository(Path.cwd()).fetch(base)


def do(
    runner: ParallelRunner,
    config: ParallelConfig,
    view: View,
    given: Mapping[str, Any],
    *,
    workflow: Workflow | None = None,
) -> None:
    """Show what a run would do, start it in the background, or carry it out, as was asked."""
    quiet, as_json = given["quiet"], given["json"]
    if given["dry_run"] and given["detach"]:
        raise ConfigError(
            "`--dry-run` and `--detach` do not go together", hint="leave one of them out"
        )
    if given["summary"] and (as_json or given["dry_run"] or given["detach"]):
        raise ConfigError(
            "`--summary` does not go together with `--json`, `--dry-run` or `--detach`",
            hint="leave one of them out",
        )
    if given["dry_run"]:
        _show_plan(runner, quiet=quiet, as_json=as_json)
    elif given["detach"]:
        _detach(runner, view, quiet=quiet, as_json=as_json)
    else:
        code = run_in_foreground(
            runner, config, view,
            workflow=workflow, quiet=quiet, as_json=as_json, summary=given["summary"],
        )  # fmt: skip
        raise typer.Exit(code)


def _show_plan(runner: ParallelRunner, *, quiet: bool, as_json: bool) -> None:
    plan = runner.plan()
    if not quiet:
        for notice in plan.notices:
            tell(notice)
    if as_json:
        show_json(plan_json(plan))
    else:
        show(plan_table(plan))
    if not quiet:
        tell(_UNCHECKED)


def _detach(runner: ParallelRunner, view: View, *, quiet: bool, as_json: bool) -> None:
    with view:
        directory = runner.reserve()
    try:
        go_on_in_background(directory, top=find_top(Path.cwd()))
    finally:
        directory.release()
    if as_json:
        show_json(dumps({"run_id": directory.run_id}))
    else:
        show(directory.run_id)
    if not quiet:
        tell(
            f"it goes on in the background: `orchestrator watch {directory.run_id}`, "
            f"`orchestrator wait {directory.run_id}`, `orchestrator stop --all`"
        )
