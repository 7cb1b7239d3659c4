"""Fixtures with a worker's harvest, and with commits to merge."""

from pathlib import Path

import pytest

from tests.support.merges import NUMBERS, World
from tests.support.quarantine import Handover
from tests.support.repository import git


@pytest.fixture
def handover(repo: Path, tmp_path: Path) -> Handover:
    """Return a repository, the worker's clone, and an empty directory for the harvest."""
    return Handover(repo, tmp_path)


@pytest.fixture
def world(repo: Path, tmp_path: Path) -> World:
    """Return a repository in which commits of several tasks are merged."""
    (repo / "numbers").write_text(NUMBERS)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "numbers")
    return World(repo, tmp_path)
