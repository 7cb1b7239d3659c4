"""Expect errors by their keys, so that a sentence can change without a test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orchestrator.errors import OrchestratorError


@contextmanager
def raises(key: str, *values: object) -> Iterator[pytest.ExceptionInfo[OrchestratorError]]:
    """Expect an error with a key, whose message or hint contains the values."""
    with pytest.raises(OrchestratorError) as caught:
        yield caught
    error = caught.value
    assert error.key == key, f"{error.key}: {error}"
    missing = [value for value in values if str(value) not in str(error)]
    assert missing == [], str(error)
