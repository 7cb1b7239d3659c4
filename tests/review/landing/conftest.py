"""Fixtures with a repository in which branches of workers are compared and merged."""

from pathlib import Path

import pytest

from tests.support.merges import NUMBERS, World
from tests.support.repository import git


@pytest.fixture
def world(repo: Path, tmp_path: Path) -> World:
    """Return a repository with a file of numbers, and a way to commit without a checkout."""
    (repo / "numbers").write_text(NUMBERS)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "numbers")
    return World(repo, tmp_path)
