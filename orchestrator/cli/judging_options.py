"""Options of the commands that judge candidates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.options import Report
from orchestrator.config.option import Group

Tests = Annotated[
    str,
    typer.Option(
        "--tests",
        metavar="frozen|extend|free",
        help="Tests that count: the base's, also the candidate's new tests, or only the "
        "candidate's.",
        rich_help_panel=Group.JUDGING,
    ),
]


@dataclass(frozen=True, kw_only=True)
class JudgingOptions:
    """Options for how candidates are judged, in addition to the checks."""

    must_fix: Annotated[
        list[str] | None,
        typer.Option(
            "--must-fix",
            metavar="CMD",
            help="Check that fails on the base commit and must pass on a candidate; repeatable.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    hidden: Annotated[
        Path | None,
        typer.Option(
            "--hidden",
            metavar="DIR",
            help="Directory outside the repository with hidden tests, added for a second run of "
            "checks.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    tests: Tests = "extend"
    instrument: Annotated[
        list[str] | None,
        typer.Option(
            "--instrument",
            metavar="GLOB",
            help="Files besides tests, such as `ci/*.sh`, that checks take from the base commit; "
            "repeatable.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    lint: Annotated[
        list[str] | None,
        typer.Option(
            "--lint",
            metavar="CMD",
            help="Linter that prints a line per finding; candidates that add fewer rank higher; "
            "repeatable.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    coverage: Annotated[
        str | None,
        typer.Option(
            "--coverage",
            metavar="CMD",
            help="Command that writes lcov or Cobertura XML to $ORCHESTRATOR_COVERAGE, to rank "
            "candidates.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    probe: Annotated[
        str | None,
        typer.Option(
            "--probe",
            metavar="CMD",
            help="Command whose output shows behaviour; candidates that agree with more others "
            "rank higher.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            metavar="CMD",
            help="Command that compares two candidates whose checks and probes have equal results.",
            rich_help_panel=Group.JUDGING,
        ),
    ] = None
    report: Report = None
