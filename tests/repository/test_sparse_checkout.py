"""Tests of sparse checkouts: worktrees are sparse too, and other files are not deleted."""

from pathlib import Path

import pytest

from orchestrator.base.results import Status, WorkerResult
from orchestrator.runs.cleanup.remove import cleanup
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run, show


@pytest.fixture
def repo(repo: Path) -> Path:
    """Return a repository of which one of three directories is checked out."""
    for name in ("here/a", "away/b", "away/deep/c"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(f"{name}\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "three")
    git(repo, "sparse-checkout", "set", "here")
    return repo


def run_one(repo: Path, engine: LocalEngine, task: str, **rest: object) -> WorkerResult:
    (worker,) = shell_run(repo, engine, task, **rest).results
    assert worker.status is Status.SUCCESS
    return worker


def printed(worker: WorkerResult) -> list[str]:
    return (Path(worker.log or "") / "stdout.log").read_text().splitlines()


def test_worktree_has_the_same_sparse_files(repo: Path, local_engine: LocalEngine) -> None:
    task = "ls; git status --porcelain; git sparse-checkout list; echo w >> here/a"
    worker = run_one(repo, local_engine, task)
    assert printed(worker) == ["a.txt", "here", "here"]
    assert worker.files_modified == ["here/a"]
    seen = Path(worker.worktree_path)
    assert sorted(path.name for path in seen.iterdir()) == [".git", "a.txt", "here"]
    assert git(seen, "status", "--porcelain") == ""
    assert show(repo, f"{worker.branch}:away/deep/c") == "away/deep/c"


def test_new_files_outside_of_the_sparse_checkout_are_harvested(
    repo: Path, local_engine: LocalEngine
) -> None:
    task = "mkdir away; echo n > away/new; echo x > here/x; git add here; git commit -qm mine"
    worker = run_one(repo, local_engine, task)
    assert worker.files_modified == ["away/new", "here/x"]


def test_worker_may_disable_the_sparse_checkout(repo: Path, local_engine: LocalEngine) -> None:
    worker = run_one(repo, local_engine, "git sparse-checkout disable; echo more >> away/b")
    assert worker.files_modified == ["away/b"]
    assert show(repo, f"{worker.branch}:away/b") == "away/b\nmore"


def test_worker_may_restore_the_sparse_checkout(repo: Path, local_engine: LocalEngine) -> None:
    task = (
        "git sparse-checkout disable; echo more >> away/b; git commit -qam mine; "
        "git sparse-checkout set here; test ! -e away; echo w >> here/a"
    )
    worker = run_one(repo, local_engine, task)
    assert worker.files_modified == ["away/b", "here/a"]
    assert show(repo, f"{worker.branch}:away/b") == "away/b\nmore"


def test_uncommitted_files_are_included(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "away").mkdir()
    (repo / "away" / "new").write_text("n\n")
    worker = run_one(repo, local_engine, "echo w >> here/a", include_uncommitted=True)
    assert worker.files_modified == ["here/a"]
    assert show(repo, f"{worker.branch}:away/new") == "n"
    assert show(repo, f"{worker.branch}:away/b") == "away/b"


def test_cleanup_backs_up_files_outside_of_the_sparse_checkout(
    repo: Path, local_engine: LocalEngine
) -> None:
    worker = run_one(repo, local_engine, "true")
    (Path(worker.worktree_path) / "away").mkdir()
    (Path(worker.worktree_path) / "away" / "new").write_text("n\n")
    (cleaned,) = cleanup(repo, engine=local_engine).workers
    assert cleaned.problem is None
    assert show(repo, f"{cleaned.backup}:away/new") == "n"
    assert show(repo, f"{cleaned.backup}:away/b") == "away/b"
