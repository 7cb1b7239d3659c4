"""`orchestrator spec validate`, `orchestrator spec schema` and `orchestrator spec graph`."""

import sys
from enum import StrEnum
from json import dumps
from typing import Annotated

import typer

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.drawing.graph import TIMES
from orchestrator.config.workflow.drawing.svg import svg
from orchestrator.config.workflow.drawing.text import listing, mermaid
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.parsing.dialects import json_schema
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.faces.cli.output.formats import terminal_width
from orchestrator.faces.cli.output.messages import show, show_json
from orchestrator.faces.cli.spec_arguments import File, Variables
from orchestrator.faces.cli.workflow_file import tell_about, variables


def validate(file: File, var: Variables = None) -> None:
    """Check a workflow file and print every mistake."""
    reading = read_workflow(file, variables=variables(var or ()))
    tell_about(reading)
    show(summary(reading.workflow))


def schema() -> None:
    """Print the JSON Schema of workflow files, for editors and other tools."""
    show_json(dumps(json_schema(), indent=2))


def summary(workflow: Workflow) -> str:
    """Return a summary such as `Release: 7 tasks in 5 waves, at most 3 at the same time`."""
    waves = [len(wave) for wave in workflow.waves()]
    tasks = _count(len(workflow.tasks), "task")
    name = one_line(workflow.name, limit=200)
    return f"{name}: {tasks} in {_count(len(waves), 'wave')}, at most {max(waves)} at the same time"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Format(StrEnum):
    """Output format of a drawn workflow."""

    TEXT = "text"
    MERMAID = "mermaid"
    SVG = "svg"


def graph(
    file: File,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="`text` for a terminal, `mermaid` for Markdown, `svg` for a browser."
        ),
    ] = Format.TEXT,
    var: Variables = None,
) -> None:
    """Draw the dependencies between the tasks of a workflow file."""
    reading = read_workflow(file, variables=variables(var or ()))
    tell_about(reading)
    show(_draw(reading.workflow, form))


def _draw(workflow: Workflow, form: Format) -> str:
    match form:
        case Format.TEXT:
            text = listing(workflow, width=terminal_width())
            return text if _shows(TIMES) else text.replace(TIMES, "x")
        case Format.MERMAID:
            return mermaid(workflow)
        case Format.SVG:
            return svg(workflow)


def _shows(characters: str) -> bool:
    """Return whether stdout's encoding can represent all of the given characters."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
