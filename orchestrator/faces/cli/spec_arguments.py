"""Arguments of the `spec` commands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.config.settings.option import Group

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
        help="Run only the task with this id; repeatable.",
        rich_help_panel=Group.COMMON,
    ),
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="TASK",
        help="Run only the task with this id, and all tasks that depend on it; repeatable.",
        rich_help_panel=Group.TASK,
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="RUN",
        help="Skip the tasks that succeeded in an earlier run, and use their results.",
        rich_help_panel=Group.TASK,
    ),
]


NOT_OF_WORKFLOWS = {
    "tasks": "remove the tasks: the workflow file lists them",
    "models": "use `model`: in the workflow file for each task, or as an option for all tasks",
}
"""Settings that workflows do not use, each with a hint what to use instead."""


@dataclass(frozen=True, kw_only=True)
class WorkflowOptions:
    """The workflow file, its variables, and the part of the workflow to run."""

    file: File
    var: Variables = None
    only: Only = None
    from_: From = None
    after: After = None
