"""How people are told: `error:` and `hint:` on stderr, results on stdout."""

import sys

from orchestrator.errors import OrchestratorError


def tell(text: str) -> None:
    """Write a line for people to stderr; nobody listening is no error."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        return


def tell_error(message: str, hint: str | None = None) -> None:
    """Write an error in the form that all of them have."""
    tell(f"error: {message}" + (f"\n\nhint: {hint}" if hint else ""))


def tell_failure(error: OrchestratorError) -> None:
    """Write one of our own errors."""
    tell_error(error.message, error.hint)


def show(text: str) -> None:
    """Write a result to stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
