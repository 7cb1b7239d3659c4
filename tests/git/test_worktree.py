"""Tests of the update of a worker's worktree, which overwrites no changes of the user."""

import threading
from pathlib import Path

import pytest

from orchestrator.errors import RepositoryError
from orchestrator.git.repository import Repository
from orchestrator.git.worktree import Worktree, add_worktree
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.private_git import settle
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run


@pytest.fixture
def base(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


@pytest.fixture
def tip(repo: Path, base: str) -> str:
    """Return a worker's commit: one file changed, one added, one deleted."""
    (repo / "a.txt").write_text("worker's\n")
    (repo / "new.txt").write_text("worker's\n")
    (repo / "src" / "app.py").unlink()
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "work")
    made = git(repo, "rev-parse", "HEAD")
    git(repo, "reset", "-q", "--hard", base)
    return made


@pytest.fixture
def worktree(repo: Path, base: str, tip: str) -> Worktree:
    """Return a worktree at the base whose branch is already at the tip."""
    repository = Repository(repo)
    spec = WorkerSpec(worker_id=1, task="x", model=None)
    with repository.lock():
        repository.claim([spec.branch], base)
        worktree = add_worktree(repository, spec)
        repository.move_branch(spec.branch, new=tip, old=base)
    return worktree


def update(repo: Path, worktree: Worktree, base: str, tip: str) -> None:
    worktree.update(Repository(repo), base=base, tip=tip)


def test_updated_worktree_equals_its_branch(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    update(repo, worktree, base, tip)
    assert git(worktree.path, "status", "--porcelain") == ""
    assert (worktree.path / "a.txt").read_text() == "worker's\n"
    assert not (worktree.path / "src").exists()


def test_update_waits_for_the_users_git(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    lock = worktree.git_dir / "index.lock"
    lock.touch()
    (worktree.path / "a.txt").touch()
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    update(repo, worktree, base, tip)
    timer.join()
    assert (worktree.path / "a.txt").read_text() == "worker's\n"


def test_refresh_waits_for_the_users_git(repo: Path, worktree: Worktree) -> None:
    (worktree.path / "a.txt").touch()
    index, lock = worktree.git_dir / "index", worktree.git_dir / "index.lock"
    lock.touch()
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    settle(Repository(repo), worktree.path, index)
    timer.join()
    assert int((worktree.path / "a.txt").stat().st_mtime) < int(index.stat().st_mtime)


@pytest.mark.parametrize("name", ["a.txt", "new.txt", "src/app.py"])
def test_changed_files_are_not_overwritten(
    repo: Path, worktree: Worktree, base: str, tip: str, name: str
) -> None:
    (worktree.path / name).write_text("user's\n")
    before = git(worktree.path, "status", "--porcelain")
    with pytest.raises(RepositoryError, match="read-tree"):
        update(repo, worktree, base, tip)
    assert (worktree.path / name).read_text() == "user's\n"
    assert git(worktree.path, "status", "--porcelain") == before


def test_no_filter_runs_in_a_workers_own_checkout(repo: Path, local_engine: LocalEngine) -> None:
    (repo / ".gitattributes").write_text("* filter=f\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "filtered")
    git(repo, "config", "filter.f.smudge", f"touch '{repo.parent}/MARK'; cat")
    (result,) = shell_run(repo, local_engine, "cat a.txt > copy.txt").results
    assert result.files_modified == ["copy.txt"]
    assert not (repo.parent / "MARK").exists()


def test_unrelated_files_of_the_user_are_kept(
    repo: Path, worktree: Worktree, base: str, tip: str
) -> None:
    (worktree.path / "mine.txt").write_text("user's\n")
    update(repo, worktree, base, tip)
    assert (worktree.path / "a.txt").read_text() == "worker's\n"
    assert git(worktree.path, "status", "--porcelain") == "?? mine.txt"


def test_slow_attributes_end_at_the_timeout(
    repo: Path, worktree: Worktree, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What ends otherwise than all that a star could stand for is tried in every way there is.
    long = "a" * 200 + "1"
    (repo / long).write_text("x\n")
    (repo / ".gitattributes").write_text("*a" * 30 + "b -text\n")
    # Plumbing alone: whoever looks for attributes here is as slow.
    for name in (long, ".gitattributes"):
        blob = git(repo, "hash-object", "-w", "--no-filters", name)
        git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
    slow = git(repo, "commit-tree", git(repo, "write-tree"), "-p", base, "-m", "slow")
    monkeypatch.setattr("orchestrator.git.worktree.CHECKOUT_TIMEOUT", 1.0)

    with pytest.raises(RepositoryError, match="took longer"):
        update(repo, worktree, base, slow)

    assert not (worktree.git_dir / "index.lock").exists()
