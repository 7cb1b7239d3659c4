"""Tests of workers whose worktree or branch is not where the run left it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Status
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import Message
from orchestrator.state.worker.turns import NextTurn
from tests.support.attempts import state_of
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run, show

BRANCH = "architect/parallel-1"
TREE = ".architect-parallel-1"


def moved(repo: Path) -> None:
    git(repo, "worktree", "move", TREE, str(repo.parent / "elsewhere"))


def moved_and_repaired(repo: Path) -> None:
    moved_alone(repo)
    git(repo, "worktree", "repair", str(repo.parent / "elsewhere"))


def moved_alone(repo: Path) -> None:
    (repo / TREE).rename(repo.parent / "elsewhere")


def removed(repo: Path) -> None:
    shutil.rmtree(repo / TREE)


def pruned(repo: Path) -> None:
    removed(repo)
    git(repo, "worktree", "prune")


def locked(repo: Path) -> None:
    git(repo, "worktree", "lock", TREE)


def checked_out_by_the_user(repo: Path) -> None:
    git(repo, "worktree", "remove", TREE)
    git(repo, "switch", "-q", BRANCH)


def switched(repo: Path) -> None:
    git(repo / TREE, "switch", "-q", "-c", "other")


def renamed(repo: Path) -> None:
    git(repo, "branch", "-m", BRANCH, "mine")


def deleted(repo: Path) -> None:
    git(repo, "worktree", "remove", "--force", TREE)
    git(repo, "branch", "-D", BRANCH)


STATES = {
    moved: "worktree.elsewhere",
    moved_and_repaired: "worktree.elsewhere",
    moved_alone: None,
    removed: None,
    pruned: None,
    locked: None,
    checked_out_by_the_user: "worktree.elsewhere",
    switched: "worktree.switched",
    renamed: "worker.gone",
    deleted: "worker.gone",
}


@pytest.mark.parametrize(
    ("change", "refused"), [pytest.param(*each, id=each[0].__name__) for each in STATES.items()]
)
def test_good_worker_continues_or_is_refused_and_nothing_is_lost(
    repo: Path,
    local_engine: LocalEngine,
    change: Callable[[Path], None],
    refused: str | None,
) -> None:
    (first,) = shell_run(repo, local_engine, "echo 1 > one.txt").results
    change(repo)
    before = git(repo, "for-each-ref")
    turn = Message(1, NextTurn(message="echo 2 > two.txt"))
    continued = ContinuedWorker(state_of(repo), turn, engine=local_engine)
    if refused is None:
        (result,) = continued.execute().results
        assert (result.status, result.message) == (Status.SUCCESS, None)
        assert show(repo, f"{BRANCH}:two.txt") == "2"
    else:
        with pytest.raises(ConfigError) as caught:
            continued.execute()
        assert caught.value.key == refused
        assert caught.value.hint
        assert git(repo, "for-each-ref") == before
        kept = state_of(repo).result(1)
        assert kept is not None
        assert kept.status is Status.SUCCESS
    elsewhere = repo.parent / "elsewhere"
    if elsewhere.exists():
        (elsewhere / "mine.txt").write_text("not committed\n")
    cleanup(repo, engine=local_engine)
    assert not elsewhere.exists() or (elsewhere / "mine.txt").exists()
    assert elsewhere.exists() == (change in (moved, moved_and_repaired, moved_alone))
    if change is not deleted:
        holding = git(repo, "for-each-ref", "--contains", first.commit or "")
        assert holding
        assert show(repo, f"{first.commit}:one.txt") == "1"
