"""What a worker handed over, and commits to merge."""

from pathlib import Path

import pytest

from tests.support.merges import NUMBERS, World
from tests.support.quarantine import Handover
from tests.support.repository import git


@pytest.fixture
def handover(repo: Path, tmp_path: Path) -> Handover:
    """A repository, the worker's clone of it, and an empty directory for what it hands over."""
    return Handover(repo, tmp_path)


@pytest.fixture
def world(repo: Path, tmp_path: Path) -> World:
    """A repository whose commits of several tasks are to be merged."""
    (repo / "numbers").write_text(NUMBERS)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "numbers")
    return World(repo, tmp_path)
