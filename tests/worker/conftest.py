"""What tests of attempts share."""

from pathlib import Path

import pytest


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    """A file that tasks add a line to, outside of everything that a run makes or removes."""
    return tmp_path / "tally"
