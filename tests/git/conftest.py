"""What a worker handed over, for tests of what is let into the repository."""

from pathlib import Path

import pytest

from tests.support.quarantine import Handover


@pytest.fixture
def handover(repo: Path, tmp_path: Path) -> Handover:
    """A repository, the worker's clone of it, and an empty directory for what it hands over."""
    return Handover(repo, tmp_path)
