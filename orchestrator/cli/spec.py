"""`orchestrator spec`: workflows, from files in which tasks say what they depend on."""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.messages import show, tell
from orchestrator.errors import ConfigError
from orchestrator.sanitize import one_line
from orchestrator.workflow.model import Workflow
from orchestrator.workflow.reading import Reading, read_workflow
from orchestrator.workflow.schema import json_schema

File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML, JSON or SQUAD.md.")]
Variables = Annotated[
    list[str] | None,
    typer.Option("--var", metavar="NAME=VALUE", help="A value of `{{NAME}}` in the file's texts."),
]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Run tasks that depend on each other."
)


@app.command()
def validate(file: File, var: Variables = None) -> None:
    """Check a workflow file: all that is wrong with it, at once."""
    reading = read_workflow(file, variables=variables(var or ()))
    tell_about(reading)
    show(summary(reading.workflow))


@app.command()
def schema() -> None:
    """Print the JSON Schema of workflow files, for editors and other tools."""
    show(dumps(json_schema(), indent=2))


def variables(given: Sequence[str]) -> dict[str, str]:
    """Read what `--var` was given."""
    found: dict[str, str] = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            shown = one_line(entry, limit=60)
            raise ConfigError(f"option `--var` is `{shown}`: must be `NAME=VALUE`")
        found[name] = value
    return found


def tell_about(reading: Reading) -> None:
    """Tell people what they should know of a file."""
    for notice in reading.notices:
        tell(f"notice: {one_line(notice, limit=400)}")
    for warning in reading.warnings:
        tell(f"warning: {one_line(warning, limit=400)}")


def summary(workflow: Workflow) -> str:
    """Give a line on what a workflow is: `Release: 7 tasks in 5 waves, at most 3 at one time`."""
    waves = [len(wave) for wave in workflow.waves()]
    tasks = _count(len(workflow.tasks), "task")
    name = one_line(workflow.name, limit=200)
    return f"{name}: {tasks} in {_count(len(waves), 'wave')}, at most {max(waves)} at one time"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
