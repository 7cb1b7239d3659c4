"""How people are told: `error:` and `hint:` on stderr, results on stdout."""

import os
import sys
from typing import TextIO

from orchestrator.cli.output.ci import guarded, guarded_json
from orchestrator.errors import OrchestratorError
from orchestrator.text.sanitize import lines


def tell(text: str) -> None:
    """Write a line for people to stderr; nobody listening is no error."""
    try:
        put(text, sys.stderr)
    except OSError:
        return


def tell_error(message: str, hint: str | None = None) -> None:
    """Write an error in the form that all of them have; nothing in it steers a terminal."""
    tell(lines(f"error: {message}" + (f"\n\nhint: {hint}" if hint else "")))


def tell_failure(error: OrchestratorError) -> None:
    """Write one of our own errors."""
    tell_error(error.message, error.hint)


def show(text: str) -> None:
    """Write a result to stdout."""
    put(text, sys.stdout)


def show_json(text: str) -> None:
    """Write a result that is JSON to stdout."""
    sys.stdout.write(guarded_json(text) + "\n")
    sys.stdout.flush()


def put(text: str, out: TextIO) -> None:
    """Write whole lines, in which no CI system finds a command.

    Every line that may hold words of a worker goes through here: see `orchestrator.cli.ci`.
    """
    out.write(guarded(text, os.environ, terminal=out.isatty()) + "\n")
    out.flush()
