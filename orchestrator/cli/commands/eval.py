"""`orchestrator eval`: run one task several times, and rank the results."""

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.judging_options import JudgingOptions
from orchestrator.cli.options import (
    Artifacts,
    Config,
    GivenSettings,
    Json,
    JUnit,
    Quiet,
    imported_later,
    with_settings,
)
from orchestrator.cli.run_options import EnvFile
from orchestrator.config.option import Group

_NOT_OF_CANDIDATES = ("tasks", "workers", "fail_fast", "fail_on")
"""Settings without a meaning for several candidates of a single task."""
_TEXTS = {"checks": "Command that each candidate must pass; repeatable."}

_evaluate = imported_later("judging_run", "evaluate")

Task = Annotated[str, typer.Argument(metavar="TASK", help="Task of every candidate.")]


@dataclass(frozen=True, kw_only=True)
class EvalOptions(JudgingOptions):
    """Options of `orchestrator eval`."""

    artifacts: Artifacts = None
    junit: JUnit = None
    number: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--candidates",
            metavar="N",
            min=1,
            help="Number of candidates. [default: one for each of `--models`, else 3]",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    first: Annotated[
        int | None,
        typer.Option(
            "--first",
            metavar="N",
            min=1,
            help="Run N candidates at a time, in the order of `--models`, until one passes.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    until: Annotated[
        int | None,
        typer.Option(
            "--until",
            metavar="K",
            min=1,
            help="With `--first`: stop when K candidates pass. [default: 1]",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    learn: Annotated[
        bool,
        typer.Option(
            "--learn",
            help="With `--first`: tell later candidates which checks earlier candidates failed.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = False
    pick: Annotated[
        str | None,
        typer.Option(
            "--pick",
            metavar="auto",
            help="`auto`: merge the candidate that is clearly the best.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    env_file: EnvFile = None
    config: Config = None
    json: Json = False
    quiet: Quiet = False


@with_settings(without=_NOT_OF_CANDIDATES, texts=_TEXTS)
def eval_(settings: GivenSettings, options: EvalOptions, task: Task) -> None:
    """Run one task several times, each in its own worktree and container, and rank the results.

    The checks run on each candidate's commit with the tests of the base commit, in fresh
    containers. The exit code is 0 if one candidate is clearly the best, 1 if no candidate passes or
    `--pick auto` could not merge the best one, and 2 if the judgement is undecided.
    """
    _evaluate(settings, options, task)
