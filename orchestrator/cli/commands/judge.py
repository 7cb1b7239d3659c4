"""`orchestrator judge`: rank the workers of a run by checks."""

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import typer

from orchestrator.cli.judging_options import JudgingOptions
from orchestrator.cli.landing_arguments import AllByDefault, run_and_workers
from orchestrator.cli.options import Config, Json, Quiet, with_options


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(JudgingOptions):
    """Options of `orchestrator judge`."""

    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="CMD",
            help="Command that must succeed on each worker's commit; repeatable. "
            "[default: `checks` of the configuration]",
        ),
    ] = None
    config: Config = None
    json: Json = False
    quiet: Quiet = False


@with_options
def judge(options: JudgeOptions, words: AllByDefault = None) -> None:
    """Rank the workers of a run by checks, which run in fresh containers.

    No agent starts. The checks run on each worker's commit with the tests of the base commit. The
    exit code is 0 if one worker is clearly the best, 1 if no worker passes, and 2 if the judgement
    is undecided.
    """
    # Imported only here: the help of the command does not need the engine.
    judging = import_module("orchestrator.cli.judging_run")
    run, numbers = run_and_workers(words)
    wanted = judging.Wanted(
        run=run,
        numbers=numbers,
        checks=options.check,
        file=options.config,
        quiet=options.quiet,
    )
    reports = judging.Reports.requested(options.report, automatic=False)
    judgement = judging.judge_workers(wanted, options)
    judging.print_judgement(judgement, as_json=options.json)
    reports.write(judgement.run_id)
    raise typer.Exit(judgement.exit_code)
