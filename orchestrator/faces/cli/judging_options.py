"""Options of `eval` and `judge` that are neither settings nor part of a request."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.config.settings.option import Group
from orchestrator.faces.cli.options import Artifacts, Config, Json, JUnit, Quiet, Report
from orchestrator.faces.cli.run_options import EnvFile

Hidden = Annotated[
    Path | None,
    typer.Option(
        "--hidden",
        metavar="DIR",
        help="Directory outside the repository with hidden tests, added for a second run of "
        "checks.",
        rich_help_panel=Group.JUDGING,
    ),
]


@dataclass(frozen=True, kw_only=True)
class JudgeCommand:
    """Options of `orchestrator judge` that are not part of the request."""

    hidden: Hidden = None
    report: Report = None
    config: Config = None
    json: Json = False
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class EvalCommand:
    """Options of `orchestrator eval` that are neither settings nor part of a request."""

    hidden: Hidden = None
    report: Report = None
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
