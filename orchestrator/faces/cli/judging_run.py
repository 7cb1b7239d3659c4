"""Run and judge candidates in containers, for the command line."""

import os
from dataclasses import replace
from pathlib import Path

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.config.derived import with_changes
from orchestrator.config.loading.loading import load_settings
from orchestrator.config.request import read_request
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.check_settings import (
    refuse_idle_options,
    require_checks,
    settings_of_checks,
    settings_without_tasks,
)
from orchestrator.faces.cli.judging_options import EvalCommand, JudgeCommand
from orchestrator.faces.cli.options import GivenSettings
from orchestrator.faces.cli.output.judgement_table import judgement_text
from orchestrator.faces.cli.output.merge_text import show_merged
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.output.views import make_view
from orchestrator.faces.cli.reporting import Reports
from orchestrator.faces.cli.run_options import check_pick
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.hidden_tests import read_hidden
from orchestrator.review.judging.judge_request import JudgingRules, Rounds
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.judging.pick import silent
from orchestrator.review.landing.land import check_ahead
from orchestrator.runs.purposes.candidates import CandidateJudge
from orchestrator.runs.purposes.picking import PickedJudgement, merge_best, with_merge

_CANDIDATES = 3
"""Default number of candidates (workers that solve the same task)."""


def judge_workers(
    run: str | None, workers: tuple[int, ...], given: GivenSettings, options: JudgeCommand
) -> Judgement:
    """Judge the workers of a run.

    Args:
        run: The run's id, or the beginning of it. Default: the newest run.
        workers: Numbers of the workers. Default: all.
        given: The rules that were given as options.
        options: The other options.

    Raises:
        OrchestratorError: There is nothing to judge, or no engine.
        typer.Exit: The command was interrupted.
    """
    repository = Repository(Path.cwd())
    rules = read_rules(repository, given, options.hidden, options.config)
    config = settings_of_checks(repository, rules.all_checks, options.config)
    note = silent if options.quiet else tell
    judge = CandidateJudge(rules, repository.top, config=config, note=note)
    return run_interruptibly(
        lambda: judge.judge(run, workers), lambda again: judge.cancel(kill=again)
    )


def print_judgement(judgement: Judgement, *, as_json: bool) -> None:
    """Print a judgement as a table or as JSON."""
    if as_json:
        show_json(judgement.model_dump_json(indent=2))
    else:
        show(judgement_text(judgement))


def read_rules(
    repository: Repository, given: GivenSettings, hidden: Path | None, file: Path | None
) -> JudgingRules:
    """Return the rules that the options and the configuration describe.

    Args:
        repository: The user's repository.
        given: The rules that were given as options.
        hidden: Directory with hidden tests.
        file: The configuration file that the user named.

    Raises:
        ConfigError: An option is invalid, or there is no check.
    """
    settings = settings_without_tasks(repository, file)
    must_fix = given.get("must_fix", ())
    configured = tuple(check.run for check in settings.project.checks)
    checks = given.get("checks") or (
        configured if must_fix else require_checks(settings, "judging")
    )
    others = [check for check in dict.fromkeys(checks) if check not in must_fix]
    configuration = {"instruments": settings.judge.instruments}
    rules = read_request(JudgingRules, {**configuration, **given, "checks": tuple(others)})
    if hidden is None:
        return rules
    network = settings.isolation.check_network
    if network != "none":
        raise ConfigError(
            f"`--hidden` requires checks without a network, and `check_network` is `{network}`",
            key="hidden-tests.network",
            hint="set `check_network: none`: over a network, a candidate's code could send the "
            "hidden files away",
        )
    return replace(rules, hidden=read_hidden(hidden, top=repository.top))


def evaluate(
    settings: GivenSettings,
    given: GivenSettings,
    given_rounds: GivenSettings,
    options: EvalCommand,
    task: str,
) -> None:
    """Run candidates for a task, judge them, and print the judgement.

    Args:
        settings: The settings of candidates that were given as options.
        given: The rules that were given as options.
        given_rounds: What was given as options about the rounds of candidates.
        options: The other options.
        task: The task of every candidate.

    Raises:
        ConfigError: An option is invalid.
        typer.Exit: With the exit code of the judgement.
    """
    check_pick(options.pick)
    if given_rounds and "first" not in given_rounds:
        option = "--learn" if "learn" in given_rounds else "--until"
        raise ConfigError(f"`{option}` requires `--first`", key="option.incomplete")
    rounds = read_request(Rounds, given_rounds)
    reports = Reports.from_options(
        options.report, quiet=options.quiet, artifacts=options.artifacts, junit=options.junit
    )
    repository = Repository(Path.cwd())
    if options.pick:
        check_ahead(repository)
    config = _candidates(repository, settings, options, task)
    checks = tuple(check.run for check in config.project.checks)
    rules = read_rules(repository, {**given, "checks": checks}, options.hidden, options.config)
    judge = CandidateJudge(
        rules,
        repository.top,
        config=config,
        note=silent if options.quiet else tell,
    )
    merged = None
    try:
        judgement = run_interruptibly(
            lambda: judge.evaluate(config, rounds, lambda: make_view(quiet=options.quiet)),
            lambda again: judge.cancel(kill=again),
        )
        if options.pick:
            judgement = picked = _pick(repository, judgement, as_json=options.json)
            merged = picked.merged
        else:
            print_judgement(judgement, as_json=options.json)
    finally:
        reports.write(judge.started[-1] if judge.started else None, merged=merged)
    raise typer.Exit(judgement.exit_code)


def _pick(repository: Repository, judgement: Judgement, *, as_json: bool) -> PickedJudgement:
    """Print a judgement, and merge the candidate that is clearly the best, if there is one."""
    if not as_json:
        print_judgement(judgement, as_json=False)
    try:
        merged = merge_best(repository, judgement, tell)
        judgement = picked = with_merge(judgement, merged)
    finally:
        if as_json:
            print_judgement(judgement, as_json=True)
    if merged is not None and not as_json:
        show_merged(merged)
    return picked


def _candidates(
    repository: Repository, given: GivenSettings, options: EvalCommand, task: str
) -> ParallelConfig:
    """Return the settings of a run in which each worker is a candidate."""
    if not task.strip():
        raise ConfigError("argument TASK must not be empty", key="task.empty")
    settings = {**given, "tasks": (task,), "env_file": tuple(options.env_file or ())}
    number = options.number
    if number is None and "models" not in given:
        number = _CANDIDATES
    if number is not None:
        settings["workers"] = str(number)
    config = load_settings(
        options=settings, environ=os.environ, top=repository.top, file=options.config
    ).config
    refuse_idle_options(given, config)
    if number is None:
        workers = min(len(config.models), config.max_workers)
        config = with_changes(config, workers=workers)
    return config
