"""Fixtures of the tests of the web view."""

from collections.abc import Iterator

import pytest

from tests.support.web import OPENED


@pytest.fixture(autouse=True)
def close_files() -> Iterator[None]:
    """Close the files of all runs that a test looked at."""
    yield
    while OPENED:
        OPENED.pop().close()
