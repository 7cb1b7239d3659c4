"""`orchestrator sandbox`: run commands in containers, without a repository."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.config.settings.option import Group
from orchestrator.faces.cli.options import (
    GivenSettings,
    Json,
    OptionsOf,
    Quiet,
    import_later,
    with_options,
)

_LIMITS = (
    *("cpus", "memory", "pids", "disk", "inodes", "log_limit"),
    *("idle_timeout", "grace"),
)
_OF_ALL = OptionsOf(
    "SandboxLimits",
    only=_LIMITS,
    texts={
        "idle_timeout": "Seconds without output after which the command is stopped; 0: no limit. "
        "[default: 0]",
    },
)
_OF_BATCH = OptionsOf(
    "Submission",
    only=("env", "timeout"),
    texts={
        "env": "Variable of all commands; `K` alone passes your variable on; repeatable.",
        "timeout": "Seconds after which a command is stopped whose line has no `timeout`. "
        "[default: 60]",
    },
)
LimitOptions = Annotated[GivenSettings, _OF_ALL]
TemplateOptions = Annotated[GivenSettings, OptionsOf("Template")]
Command = Annotated[
    list[str], typer.Argument(metavar="CMD", help="Command to run and its arguments, after `--`.")
]

_run = import_later("sandbox_run", "run_command")
_batch = import_later("sandbox_batch", "run_batch")


@dataclass(frozen=True, kw_only=True)
class BatchCommand:
    """Options of `orchestrator sandbox batch` that are not part of a model."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Submissions, one JSON object on each line; `-`: standard input."
        ),
    ]
    jobs: Annotated[
        int,
        typer.Option(
            "-j",
            "--jobs",
            metavar="N",
            min=1,
            max=1000,
            help="Maximum number of sandboxes at the same time.",
            rich_help_panel=Group.COMMON,
        ),
    ] = 4
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="File for the results, one JSON object on each line. [default: stdout]",
            rich_help_panel=Group.OUTPUT,
        ),
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the submissions that have no result in the file of `--results`.",
            rich_help_panel=Group.COMMON,
        ),
    ] = False
    report: Annotated[
        list[str] | None,
        typer.Option(
            "--report",
            metavar="junit=FILE",
            help="Write a report in the format of JUnit at the end.",
            rich_help_panel=Group.OUTPUT,
        ),
    ] = None
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the summary as JSON, on stdout: without `--results`, as the last line.",
            rich_help_panel=Group.COMMON,
        ),
    ] = False
    quiet: Quiet = False


@with_options
def run(
    limits: LimitOptions,
    template: TemplateOptions,
    submission: Annotated[GivenSettings, OptionsOf("Submission")],
    command: Command,
    json: Json = False,
) -> None:
    """Run a command in a container of its own, which is gone afterwards.

    The exit code is that of the command; 124 if it was stopped at its timeout, 137 if it was
    killed at a limit, with the reason on stderr. Codes 3 and 7 may also be errors of this
    program: `--json` prints what it was.
    """
    _run(limits, template, submission, command, json)


@with_options
def batch(
    limits: LimitOptions,
    template: TemplateOptions,
    submission: Annotated[GivenSettings, _OF_BATCH],
    options: BatchCommand,
) -> None:
    """Run the commands of a file, each in a container of its own.

    Results are printed as the commands end, one JSON object on each line. The exit code is 0 if
    every command ended with exit code 0, and 1 otherwise.
    """
    _batch(limits, template, submission, options)
