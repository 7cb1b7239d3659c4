"""`orchestrator spec graph`: draw a workflow."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.config.workflow.drawing.graph import TIMES
from orchestrator.config.workflow.drawing.svg import svg
from orchestrator.config.workflow.drawing.text import listing, mermaid
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.faces.cli.output.formats import terminal_width
from orchestrator.faces.cli.output.messages import show
from orchestrator.faces.cli.spec_arguments import File, Variables
from orchestrator.faces.cli.workflow_file import tell_about, variables


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
