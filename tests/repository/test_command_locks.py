"""Tests of waiting, for a limited time, while the user's git holds a lock."""

import threading
from pathlib import Path

import pytest

from orchestrator.base.errors import GitCommandError
from orchestrator.repository.git.command import Git


def test_released_lock_is_waited_for(repo: Path) -> None:
    lock = repo / ".git" / "index.lock"
    lock.touch()
    (repo / "fresh").write_text("fresh\n")
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    git = Git(repo / ".git", work_tree=repo)
    git.run("add", "fresh")
    timer.join()
    assert git.text("diff", "--cached", "--name-only") == "fresh"


def test_lock_that_stays_is_an_error(repo: Path) -> None:
    (repo / ".git" / "index.lock").touch()
    (repo / "fresh").write_text("fresh\n")
    with pytest.raises(GitCommandError, match=r"index\.lock"):
        Git(repo / ".git", work_tree=repo).run("add", "fresh")
