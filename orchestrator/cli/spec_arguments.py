"""Arguments of the `spec` commands, and the output of notices and warnings."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.output.messages import tell
from orchestrator.config.option import Group
from orchestrator.errors import ConfigError
from orchestrator.text.sanitize import one_line
from orchestrator.workflow.parsing.reader import Reading
from orchestrator.workflow.selection import only, starting_at

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="Workflow file: YAML, JSON or SQUAD.md.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--var",
        metavar="NAME=VALUE",
        help="Value of `{{NAME}}` in the workflow file; repeatable.",
        rich_help_panel=Group.COMMON,
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="TASK",
        help="Run only this task; repeatable.",
        rich_help_panel=Group.COMMON,
    ),
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="TASK",
        help="Run only this task and the tasks that depend on it; repeatable.",
        rich_help_panel=Group.TASK,
    ),
]


def variables(given: Sequence[str]) -> dict[str, str]:
    """Return the variables given with `--var`."""
    values: dict[str, str] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            shown = one_line(entry, limit=60)
            raise ConfigError(f"option `--var` is `{shown}`: must be `NAME=VALUE`")
        values[name] = value
    return values


def selected(reading: Reading, only_: Sequence[str], from_: Sequence[str]) -> Reading:
    """Return the selected part of a workflow.

    Args:
        reading: The whole file.
        only_: Values of `--only`.
        from_: Values of `--from`.
    """
    if only_ and from_:
        raise ConfigError("options `--only` and `--from` cannot be used together")
    if not only_ and not from_:
        return reading
    part = only(reading.workflow, only_) if only_ else starting_at(reading.workflow, from_)
    return replace(
        reading, workflow=part.workflow, notices=(*reading.notices, *part.notices), warnings=()
    )


def tell_about(reading: Reading) -> None:
    """Print the notices and warnings about a workflow file."""
    for notice in reading.notices:
        tell(one_line(notice, limit=400))
    for warning in reading.warnings:
        tell(f"warning: {one_line(warning, limit=400)}")
