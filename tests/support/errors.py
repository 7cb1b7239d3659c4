"""Expect errors by their keys, so that a sentence can change without a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.faces.cli.output.messages import tell_failure


@contextmanager
def raises(key: str, *values: object) -> Iterator[pytest.ExceptionInfo[OrchestratorError]]:
    """Expect an error with a key, whose message or hint contains the values."""
    with pytest.raises(OrchestratorError) as caught:
        yield caught
    _check(caught.value, key, values)


@contextmanager
def reports(key: str, *values: object) -> Iterator[None]:
    """Expect that a command line of this process prints an error with a key, and the values."""
    printed: list[OrchestratorError] = []

    def tell(error: OrchestratorError) -> None:
        printed.append(error)
        tell_failure(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.faces.cli.app.tell_failure", tell)
        yield
    (error,) = printed
    _check(error, key, values)


def _check(error: OrchestratorError, key: str, values: tuple[object, ...]) -> None:
    assert error.key == key, f"{error.key}: {error}"
    missing = [value for value in values if str(value) not in str(error)]
    assert missing == [], str(error)
