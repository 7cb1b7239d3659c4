"""Tests of the removal of pushed workers, and of old merged workers."""

import os
import time
from pathlib import Path

import pytest

from orchestrator.base.events import Notice
from orchestrator.faces.cli.app import run
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, past_run

COMMIT = "echo {0} > {0}.txt; git add -A; git commit -qm {0}"
TASKS = tuple(COMMIT.format(name) for name in ("merged", "pushed", "dirty", "neither"))


def removed(repo: Path, **wanted: bool) -> list[int]:
    report = cleanup(repo, engine=None, wanted=Wanted(**wanted))
    return [worker.worker_id for worker in report.workers]


@pytest.fixture
def workers(repo: Path, local_engine: LocalEngine) -> Path:
    """Run four workers: merged; pushed under another name; pushed and changed since; neither."""
    past_run(repo, local_engine, *TASKS)
    git(repo, "merge", "-q", "architect/parallel-1")
    remote = repo.parent / "remote.git"
    git(repo, "init", "-q", "--bare", str(remote))
    git(repo, "remote", "add", "origin", str(remote))
    git(repo, "push", "-q", "origin", "architect/parallel-2:refs/heads/fix/two")
    git(repo, "push", "-q", "origin", "architect/parallel-3")
    (repo / ".architect-parallel-3" / "later.txt").write_text("mine")
    return repo


def test_pushed_selects_only_workers_whose_commits_a_remote_has(workers: Path) -> None:
    assert removed(workers, pushed=True) == [2]
    assert (workers / ".architect-parallel-3" / "later.txt").exists()
    git(workers / ".architect-parallel-3", "add", "-A")
    git(workers / ".architect-parallel-3", "commit", "-qm", "later")
    assert removed(workers, pushed=True) == [], "the newest commit is on no remote"
    git(workers, "push", "-q", "origin", "architect/parallel-3")
    assert removed(workers, pushed=True, merged=True) == [1, 3]
    assert branches(workers) == ["architect/parallel-4"]


def test_worker_without_commits_counts_as_pushed(repo: Path, local_engine: LocalEngine) -> None:
    past_run(repo, local_engine, "true")
    assert removed(repo, pushed=True) == [1]


def grow_old(repo: Path, hours: float) -> None:
    past = time.time() - hours * 3600
    for found in all_runs(Repository(repo).state_dir):
        for file in found.path.glob("worker-*/result.json"):
            os.utime(file, (past, past))


def test_run_removes_old_merged_workers(workers: Path, local_engine: LocalEngine) -> None:
    (workers / ".architect-parallel-1" / "note.txt").write_text("mine")
    git(workers, "merge", "-q", "architect/parallel-2")
    pushed = git(workers, "rev-parse", "architect/parallel-2")
    grow_old(workers, 5)
    told = []

    def again(retention: str) -> None:
        config = configured("true", retention=retention)
        ParallelRunner(config, workers, engine=local_engine, emit=told.append).execute()

    again("6h")
    assert git(workers, "rev-parse", "architect/parallel-2") == pushed
    again("4h")
    # Worker 2 was removed, so the new run used its number again.
    assert git(workers, "rev-parse", "architect/parallel-2") == git(workers, "rev-parse", "HEAD")
    assert (workers / ".architect-parallel-1" / "note.txt").exists(), "uncommitted: kept"
    assert (workers / ".architect-parallel-4").exists()
    notices = [one.message for one in told if isinstance(one, Notice)]
    assert "merged and older than 4h: removed worker 2" in notices


def test_gc_uses_the_option_or_the_setting(
    workers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workers)
    grow_old(workers, 3)
    assert run(["gc"]) == 0
    assert capsys.readouterr().err.startswith("nothing to clean up"), "6h is the default"
    (workers / "orchestrator.yaml").write_text("parallel_runs: {retention: 2h}")
    assert run(["gc", "--dry-run"]) == 0
    assert "would remove worker 1:" in capsys.readouterr().out
    assert run(["gc", "--older-than", "4h"]) == 0
    assert (workers / ".architect-parallel-1").exists()
    assert run(["gc"]) == 0
    assert not (workers / ".architect-parallel-1").exists()
    assert (workers / ".architect-parallel-4").exists()
    (workers / "orchestrator.yaml").write_text("parallel_runs: {retention: soon}")
    assert run(["gc"]) == 3
    assert "an age must be a whole number and a unit" in capsys.readouterr().err
