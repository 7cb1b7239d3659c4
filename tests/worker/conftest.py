"""Fixtures for tests of attempts."""

from pathlib import Path

import pytest


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    """Return a file outside of the run's files, to which tasks append a line per attempt."""
    return tmp_path / "tally"
