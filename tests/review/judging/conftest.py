"""A repository of a project with a bug."""

from pathlib import Path

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.review.judging.instruments import Instruments
from orchestrator.review.judging.trees import Trees
from tests.support.judging import FILES
from tests.support.merges import WHEN, World
from tests.support.repository import git


@pytest.fixture
def world(repo: Path, tmp_path: Path) -> World:
    """Return a repository with a function that is wrong, and a test that shows it."""
    for name, text in FILES.items():
        path = repo / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a shop")
    return World(repo, tmp_path)


@pytest.fixture
def trees(world: World, tmp_path: Path) -> Trees:
    """Return what reads the commits of the repository."""
    repository = Repository(world.repo)
    return Trees(repository, repository.git, tmp_path, world.base, WHEN, Instruments())
