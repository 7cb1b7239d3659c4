"""Tests of restoring workers, and of errors that name the obstacle."""

import fcntl
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.restore import restore
from orchestrator.state.run_directory import all_runs
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, past_run

COMMIT = "echo done > done.txt; git add -A; git commit -qm done"


@pytest.fixture(autouse=True)
def kept(repo: Path, local_engine: LocalEngine) -> None:
    """Return a repository with backups of two workers."""
    past_run(repo, local_engine, COMMIT, COMMIT)
    cleanup(repo, engine=None)


def refused(repo: Path, *workers: int) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        restore(repo, workers=workers)
    return caught.value


def test_restore_recreates_worktrees_and_branches(repo: Path) -> None:
    assert [worker.worker_id for worker in restore(repo)] == [1, 2]
    assert (repo / ".architect-parallel-2" / "done.txt").read_text() == "done\n"


def test_existing_directory_is_named(repo: Path) -> None:
    place = repo / ".architect-parallel-2"
    place.mkdir()
    error = refused(repo)
    assert error.key == "restore.blocked"
    assert str(place) in error.message
    assert "`orchestrator parallel-cleanup 2`" in str(error.hint)
    assert branches(repo) == []


def test_existing_branch_is_named(repo: Path) -> None:
    git(repo, "branch", "architect/parallel-1")
    error = refused(repo, 1)
    assert error.key == "restore.blocked"
    assert "`architect/parallel-1`" in error.message
    assert [worker.worker_id for worker in restore(repo, workers=(2,))] == [2]


def test_number_of_a_live_run_is_not_restored(repo: Path) -> None:
    (run,) = all_runs(Repository(repo).state_dir)
    with (run.path / "lease").open("r+") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        error = refused(repo, 2)
    assert error.key == "worker.live"
    assert f"worker 2 belongs to run {run.run_id}" in error.message
    assert branches(repo) == []


def test_missing_backups_are_named(repo: Path) -> None:
    error = refused(repo, 1, 7, 8)
    assert error.key == "backup.missing"
    assert "worker 7, 8" in error.message


def test_run_is_selected_by_id_prefix(repo: Path, local_engine: LocalEngine) -> None:
    past_run(repo, local_engine, COMMIT)
    cleanup(repo, engine=None)
    first, second = (run.run_id for run in all_runs(Repository(repo).state_dir))
    with raises("run.ambiguous"):
        restore(repo, run_id=first[:2])
    with raises("backup.missing"):
        restore(repo, run_id="1999")
    restored = restore(repo, run_id=second[:-1])
    assert [(one.run_id, one.worker_id) for one in restored] == [(second, 1)]
