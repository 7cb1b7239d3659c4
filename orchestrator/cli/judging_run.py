"""Run and judge candidates in containers, for the command line."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import typer

from orchestrator.cli.check_settings import (
    configured_checks,
    settings_of_checks,
    settings_without_tasks,
)
from orchestrator.cli.commands.eval import EvalOptions
from orchestrator.cli.commands.merge import show_merged
from orchestrator.cli.commands.pick import merge_picked
from orchestrator.cli.judging_options import JudgingOptions
from orchestrator.cli.new_run import refuse_idle_options
from orchestrator.cli.options import GivenSettings
from orchestrator.cli.output.judgement_table import judgement_text
from orchestrator.cli.output.messages import show, show_json, tell, tell_failure
from orchestrator.cli.output.views import make_view
from orchestrator.cli.reporting import Reports
from orchestrator.cli.signals import Interruption
from orchestrator.config.loading import load_settings
from orchestrator.config.run import ParallelConfig
from orchestrator.engine import load_engine
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.git.repository import Repository
from orchestrator.judging.cases import Rules
from orchestrator.judging.check_run import Tester, Tests
from orchestrator.judging.hidden_files import read_hidden
from orchestrator.judging.judge import check_base, judge_run
from orchestrator.judging.judgement import Judgement
from orchestrator.landing.branches import read_branches
from orchestrator.landing.merge import Wish
from orchestrator.landing.merged import Merged
from orchestrator.reports.decisions import winner
from orchestrator.results import RunResult, WorkerResult
from orchestrator.runs.commit_test import ContainerTest
from orchestrator.runs.runner import ParallelRunner
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line

_CANDIDATES = 3
"""Default number of candidates (workers that solve the same task)."""
_AT_ONCE = 4
"""Maximum number of commits whose checks run at the same time."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The candidates to judge, and the configuration of the checks."""

    run: str | None = None
    numbers: tuple[int, ...] = ()
    earlier: tuple[str, ...] = ()
    """Earlier runs for the same task."""
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
    earlier = [read_branches(repository, run) for run in wanted.earlier]
    run = read_branches(repository, wanted.run, wanted.numbers)
    with _tester(repository, rules, wanted.file) as tester:
        if not wanted.quiet:
            tell(f"judging {count(len(run.branches), 'worker')} of run {run.run_id}")
        return judge_run(repository, [*earlier, run], rules, tester)


@contextmanager
def _tester(repository: Repository, rules: Rules, file: Path | None) -> Iterator[Tester]:
    """Yield what runs checks in containers; a signal stops the checks.

    Raises:
        typer.Exit: The command was interrupted.
    """
    config = settings_of_checks(repository, rules.all_checks, file, workers=1)
    with closing(load_engine("docker")) as engine:
        image = ParallelRunner(config, repository.top).plan().image
        test = ContainerTest(config, (), repository.top, engine)
        with interruptible(lambda _: test.cancel()):
            yield Tester(
                run=test.run_checks,
                identity=test.identity(engine.image_id(image) or image),
                workers=max(1, min(_AT_ONCE, os.cpu_count() or 1)),
            )


@contextmanager
def interruptible(stop: Callable[[bool], None]) -> Iterator[None]:
    """Call `stop` at a signal, and exit with the signal's code when the work ends.

    Args:
        stop: Called with False at the first signal, with True at every later one.

    Raises:
        typer.Exit: There was a signal.
    """
    with Interruption(stop) as interruption:
        try:
            yield
        except OrchestratorError as error:
            if interruption.exit_code is None:
                raise
            tell_failure(error)
    if interruption.exit_code is not None:
        raise typer.Exit(interruption.exit_code)


def print_judgement(judgement: Judgement, *, as_json: bool) -> None:
    """Print a judgement as a table or as JSON."""
    if as_json:
        show_json(judgement.model_dump_json(indent=2))
    else:
        show(judgement_text(judgement))


def rules_of(repository: Repository, wanted: Wanted, options: JudgingOptions) -> Rules:
    """Return the rules that the options and the configuration describe.

    Raises:
        ConfigError: An option is invalid, or there is no check.
    """
    if options.tests not in get_args(Tests):
        raise ConfigError(
            f"option `--tests` is `{one_line(options.tests)}`: must be one of "
            f"{', '.join(get_args(Tests))}"
        )
    must_fix = tuple(options.must_fix or ())
    checks = tuple(wanted.checks or ()) or configured_checks(repository, wanted.file)
    if not checks and not must_fix:
        raise ConfigError(
            "judging needs a check", hint="name a command that must succeed: `--check 'make test'`"
        )
    hidden = _hidden(repository, wanted, options.hidden) if options.hidden else {}
    return Rules(
        checks=tuple(one for one in dict.fromkeys(checks) if one not in must_fix),
        must_fix=must_fix,
        tests=options.tests,  # type: ignore[arg-type]
        instruments=tuple(options.instrument or ()),
        hidden=hidden,
        lint=tuple(options.lint or ()),
        probe=options.probe,
        judge=options.judge,
    )


def _hidden(repository: Repository, wanted: Wanted, directory: Path) -> dict[str, bytes]:
    """Return the hidden files, which a candidate's code could send away through a network."""
    network = settings_without_tasks(repository, wanted.file).isolation.check_network
    if network != "none":
        raise ConfigError(
            f"`--hidden` requires checks without a network, and `check_network` is `{network}`",
            hint="a candidate's code could send the hidden files away during the checks",
        )
    return read_hidden(directory, top=repository.top)


def evaluate(given: GivenSettings, options: EvalOptions, task: str) -> None:
    """Run candidates for a task, judge them, and print the judgement.

    Raises:
        ConfigError: An option is invalid.
        typer.Exit: With the exit code of the judgement.
    """
    if options.pick not in (None, "auto"):
        raise ConfigError(f"option `--pick` is `{one_line(options.pick or '')}`: must be `auto`")
    if options.until is not None and options.first is None:
        raise ConfigError("`--until` requires `--first`")
    reports = Reports.requested(options.report, quiet=options.quiet)
    repository = Repository(Path.cwd())
    config = _candidates(repository, given, options, task)
    checks = tuple(check.run for check in config.project.checks)
    wanted = Wanted(checks=checks, file=options.config, quiet=options.quiet)
    # Errors are found before the candidates cost anything.
    rules = rules_of(repository, wanted, options)
    with _tester(repository, rules, options.config) as tester:
        check_base(repository, repository.resolve(config.base), rules, tester)
    started: list[str] = []
    merged = None
    try:
        judgement = _judged_rounds(config, wanted, options, started)
        print_judgement(judgement, as_json=options.json)
        if options.pick:
            merged = _pick(repository, judgement, quiet=options.json)
    finally:
        reports.write(started[-1] if started else None, merged=merged)
    raise typer.Exit(judgement.exit_code)


def _judged_rounds(
    config: ParallelConfig, wanted: Wanted, options: EvalOptions, started: list[str]
) -> Judgement:
    """Run the candidates in rounds, and return the judgement after the last one.

    Args:
        config: The settings for all candidates.
        wanted: The configuration of the checks.
        options: The options of the command.
        started: Gets the id of each run that was started.
    """
    runs: list[RunResult] = []
    left = list(rounds(config, options.first))
    while True:
        runs.append(_run(left.pop(0), options, started))
        ids = [run.run_id for run in runs]
        now = replace(wanted, run=ids[-1], earlier=tuple(ids[:-1]))
        judgement = judge_workers(now, options)
        passing = sum(one.passes for one in judgement.candidates)
        if not left or passing >= (options.until or 1):
            return judgement
        rest = rest_of_budget(config.budget_total, [one for run in runs for one in run.results])
        if rest == 0:
            tell("no more candidates: the budget would not be enough for one")
            return judgement
        left = [one.model_copy(update={"budget_total": rest}) for one in left]


def rounds(config: ParallelConfig, first: int | None) -> Iterator[ParallelConfig]:
    """Yield the settings of each round of candidates.

    Args:
        config: The settings for all candidates.
        first: Number of candidates of one round; None: all of them.
    """
    models = [*config.models, *([None] * (config.workers - len(config.models)))]
    size = first or len(models)
    for start in range(0, len(models), size):
        part = models[start : start + size]
        named = tuple(model for model in part if model is not None)
        yield config.model_copy(update={"models": named, "workers": len(part)})


def rest_of_budget(budget: float | None, results: Sequence[WorkerResult]) -> float | None:
    """Return what is left of a budget; 0 if it is less than the mean cost of a candidate.

    Args:
        budget: The budget for all candidates; None without a budget.
        results: The candidates so far.
    """
    if budget is None:
        return None
    spent = sum(one.cost for one in results)
    rest = budget - spent
    return rest if rest > 0 and rest >= spent / len(results) else 0


def _pick(repository: Repository, judgement: Judgement, *, quiet: bool) -> Merged | None:
    """Merge the candidate that is clearly the best, if there is one."""
    best = winner(judgement)
    if best is None:
        return None
    merged = merge_picked(repository, judgement, best, Wish(named=True))
    if not quiet:
        show_merged(merged)
    return merged


def _candidates(
    repository: Repository, given: GivenSettings, options: EvalOptions, task: str
) -> ParallelConfig:
    """Return the settings of the run of all candidates."""
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
        config = config.model_copy(update={"workers": len(config.models)})
    return config


def _run(config: ParallelConfig, options: EvalOptions, started: list[str]) -> RunResult:
    # The checks run once, when the candidates are judged.
    project = config.project.model_copy(update={"checks": ()})
    config = config.model_copy(update={"project": project})
    view = make_view(quiet=options.quiet)
    runner = ParallelRunner(config, emit=view)
    try:
        with interruptible(lambda again: runner.cancel(kill=again)), view:
            return runner.execute()
    finally:
        started += [runner.run_id] if runner.run_id else []
