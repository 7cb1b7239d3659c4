"""Print messages: `error:` and `hint:` on stderr, results on stdout."""

import os
import sys
from typing import TextIO

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.text.sanitize import lines
from orchestrator.faces.cli.output.ci import guard, guard_json


def tell(text: str) -> None:
    """Print a line on stderr; an error while printing is ignored."""
    try:
        put(text, sys.stderr)
    except OSError:
        return


def tell_error(message: str, hint: str | None = None) -> None:
    """Print an error and its hint, safe for a terminal."""
    # protection: error-messages-are-sanitised
    tell(lines(f"error: {message}" + (f"\n\nhint: {hint}" if hint else "")))


def tell_failure(error: OrchestratorError) -> None:
    """Print an `OrchestratorError` with its hint."""
    tell_error(error.message, error.hint)


def show(text: str) -> None:
    """Print a result on stdout."""
    put(text, sys.stdout)


def show_json(text: str) -> None:
    """Print a JSON result on stdout."""
    sys.stdout.write(guard_json(text) + "\n")
    sys.stdout.flush()


def show_document(text: str) -> None:
    """Print a document on stdout unchanged; its format must be free of commands of CI systems."""
    sys.stdout.write(text)
    sys.stdout.flush()


def put(text: str, out: TextIO) -> None:
    """Write lines, changed if necessary so that no CI system finds commands in them.

    All output that may contain text of workers is written by this function: see
    `orchestrator.faces.cli.output.ci`.
    """
    out.write(guard(text, os.environ, terminal=out.isatty()) + "\n")
    out.flush()
