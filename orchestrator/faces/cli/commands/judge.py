"""`orchestrator judge`: rank the workers of a run by checks."""

from typing import Annotated

import typer

from orchestrator.faces.cli.judging_options import JudgeCommand
from orchestrator.faces.cli.landing_arguments import AllByDefault, run_and_workers
from orchestrator.faces.cli.options import GivenSettings, OptionsOf, with_options


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
