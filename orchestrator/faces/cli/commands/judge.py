"""`orchestrator judge` and `orchestrator eval`: rank the workers of a run, or of a new one."""

from typing import Annotated

import typer

from orchestrator.faces.cli.judging_options import EvalCommand, JudgeCommand
from orchestrator.faces.cli.landing_arguments import AllByDefault, run_and_workers
from orchestrator.faces.cli.options import GivenSettings, OptionsOf, with_options, with_settings


@with_options
def judge(
    given: Annotated[GivenSettings, OptionsOf("JudgingRules")],
    options: JudgeCommand,
    words: AllByDefault = None,
) -> None:
    """Rank the workers of a run by checks, which run in fresh containers.

    No agent starts. The checks run on each worker's commit with the tests of the base commit. The
    exit code is 0 if one worker is clearly the best, 1 if no worker passes, and 2 if the judgement
    is undecided.
    """
    # Imported here because the help of the command does not need the engine.
    from orchestrator.faces.cli.judging_run import judge_workers, print_judgement
    from orchestrator.faces.cli.reporting import Reports

    run, numbers = run_and_workers(words)
    reports = Reports.from_options(options.report, automatic=False)
    judgement = judge_workers(run, numbers, given, options)
    print_judgement(judgement, as_json=options.json)
    reports.write(judgement.run_id)
    raise typer.Exit(judgement.exit_code)


_NOT_OF_CANDIDATES = ("tasks", "workers", "fail_fast", "fail_on")
"""Settings without a meaning for several candidates of a single task."""
_TEXTS = {"checks": "Command that each candidate must pass; repeatable."}

Task = Annotated[str, typer.Argument(metavar="TASK", help="Task of every candidate.")]
_Rules = Annotated[GivenSettings, OptionsOf("JudgingRules", without=("checks",))]
_Rounds = Annotated[GivenSettings, OptionsOf("Rounds")]


@with_settings(without=_NOT_OF_CANDIDATES, texts=_TEXTS)
def eval_(
    settings: GivenSettings, rules: _Rules, rounds: _Rounds, options: EvalCommand, task: Task
) -> None:
    """Run one task several times, each in its own worktree and container, and rank the results.

    The checks run on each candidate's commit with the tests of the base commit, in fresh
    containers. The exit code is 0 if one candidate is clearly the best, 1 if no candidate passes or
    `--pick auto` could not merge the best one, and 2 if the judgement is undecided.
    """
    # Imported here because the help of the command does not need the engine.
    from orchestrator.faces.cli.judging_run import evaluate

    evaluate(settings, rules, rounds, options, task)
