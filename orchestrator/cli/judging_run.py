"""Run and judge candidates in containers, for the command line."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import typer

from orchestrator.cli.check_settings import (
    required_checks,
    settings_of_checks,
    settings_without_tasks,
)
from orchestrator.cli.commands.eval import EvalOptions
from orchestrator.cli.judging_options import JudgingOptions
from orchestrator.cli.new_run import refuse_idle_options
from orchestrator.cli.options import GivenSettings
from orchestrator.cli.output.judgement_table import judgement_text
from orchestrator.cli.output.merge_text import show_merged
from orchestrator.cli.output.messages import show, show_json, tell
from orchestrator.cli.output.views import View, make_view
from orchestrator.cli.reporting import Reports
from orchestrator.cli.run_options import check_pick
from orchestrator.cli.signals import interruptible
from orchestrator.config.loading import load_settings
from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.cases import JudgingRules
from orchestrator.judging.check_run import Tests, check_commands
from orchestrator.judging.hidden_tests import read_hidden
from orchestrator.judging.judgement import Judgement
from orchestrator.judging.pick import silent
from orchestrator.landing.land import check_ahead
from orchestrator.runs.candidates import CandidateJudge, Rounds, checks_config
from orchestrator.runs.picking import PickedJudgement, merge_best, with_merge
from orchestrator.text.sanitize import one_line

_CANDIDATES = 3
"""Default number of candidates (workers that solve the same task)."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The candidates to judge, and the configuration of the checks."""

    run: str | None = None
    numbers: tuple[int, ...] = ()
    checks: Sequence[str] | None = None
    file: Path | None = None
    """The configuration file that the user named."""
    quiet: bool = False


def judge_workers(wanted: Wanted, options: JudgingOptions) -> Judgement:
    """Judge the workers of a run.

    Raises:
        OrchestratorError: There is nothing to judge, or no engine.
        typer.Exit: The command was interrupted.
    """
    repository = Repository(Path.cwd())
    rules = rules_of(repository, wanted, options)
    config = settings_of_checks(repository, rules.all_checks, wanted.file)
    judge = _make_judge(repository, rules, config, quiet=wanted.quiet)
    with interruptible(lambda again: judge.cancel(kill=again)):
        return judge.judge(wanted.run, wanted.numbers)


def _make_judge(
    repository: Repository, rules: JudgingRules, config: ParallelConfig, *, quiet: bool
) -> CandidateJudge:
    note = silent if quiet else tell
    return CandidateJudge(rules, repository.top, config=config, note=note)


def print_judgement(judgement: Judgement, *, as_json: bool) -> None:
    """Print a judgement as a table or as JSON."""
    if as_json:
        show_json(judgement.model_dump_json(indent=2))
    else:
        show(judgement_text(judgement))


def rules_of(repository: Repository, wanted: Wanted, options: JudgingOptions) -> JudgingRules:
    """Return the rules that the options and the configuration describe.

    Raises:
        ConfigError: An option is invalid, or there is no check.
    """
    if options.tests not in get_args(Tests):
        raise ConfigError(
            f"option `--tests` is `{one_line(options.tests)}`: must be one of "
            f"{', '.join(get_args(Tests))}"
        )
    settings = settings_without_tasks(repository, wanted.file)
    must_fix = tuple(options.must_fix or ())
    configured = tuple(check.run for check in settings.project.checks)
    checks = wanted.checks or (configured if must_fix else required_checks(settings, "judging"))
    others = (options.coverage, options.probe, options.judge)
    given = (
        *checks,
        *must_fix,
        *(options.lint or ()),
        *(check for check in others if check is not None),
    )
    check_commands(given)
    return JudgingRules(
        checks=tuple(check for check in dict.fromkeys(checks) if check not in must_fix),
        must_fix=must_fix,
        tests=options.tests,  # type: ignore[arg-type]
        instruments=tuple(options.instrument or ()) or settings.judge.instruments,
        hidden=_hidden(repository, settings, options.hidden) if options.hidden else {},
        lint=tuple(options.lint or ()),
        coverage=options.coverage,
        probe=options.probe,
        judge=options.judge,
    )


def _hidden(repository: Repository, settings: ParallelConfig, directory: Path) -> dict[str, bytes]:
    """Return the files of `--hidden` by path; refuse the option if the checks have a network.

    With a network, a candidate's code could send the files away.
    """
    network = settings.isolation.check_network
    if network != "none":
        raise ConfigError(
            f"`--hidden` requires checks without a network, and `check_network` is `{network}`",
            hint="set `check_network: none`: over a network, a candidate's code could send the "
            "hidden files away",
        )
    return read_hidden(directory, top=repository.top)


def evaluate(given: GivenSettings, options: EvalOptions, task: str) -> None:
    """Run candidates for a task, judge them, and print the judgement.

    Raises:
        ConfigError: An option is invalid.
        typer.Exit: With the exit code of the judgement.
    """
    check_pick(options.pick)
    if options.first is None and (options.until is not None or options.learn):
        raise ConfigError(f"`--{'learn' if options.learn else 'until'}` requires `--first`")
    reports = Reports.requested(
        options.report, quiet=options.quiet, artifacts=options.artifacts, junit=options.junit
    )
    repository = Repository(Path.cwd())
    if options.pick:
        check_ahead(repository)
    config = _candidates(repository, given, options, task)
    checks = tuple(check.run for check in config.project.checks)
    wanted = Wanted(checks=checks, file=options.config, quiet=options.quiet)
    rules = rules_of(repository, wanted, options)
    settings = checks_config(config, rules.all_checks)
    judge = _make_judge(repository, rules, settings, quiet=options.quiet)
    rounds = Rounds(first=options.first, until=options.until or 1, learn=options.learn)
    merged = None
    try:
        with interruptible(lambda again: judge.cancel(kill=again)):
            judgement = judge.evaluate(config, rounds, lambda: _view(options))
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


def _view(options: EvalOptions) -> View:
    return make_view(quiet=options.quiet)


def _candidates(
    repository: Repository, given: GivenSettings, options: EvalOptions, task: str
) -> ParallelConfig:
    """Return the settings of a run in which each worker is a candidate."""
    if not task.strip():
        raise ConfigError("argument TASK must not be empty")
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
        config = config.model_copy(update={"workers": workers})
    return config
