"""Tests of the cleanup of workers that started from the commits of others."""

import os
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker, Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.restore import restore
from orchestrator.runs.resuming.recorded import settings_to_repeat
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_record import read_record
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, show

TASKS = {
    "one": ("echo 1 > one.txt", ()),
    "two": ("echo 2 > two.txt", ()),
    "looks": ("test -f one.txt && test -f two.txt", ("one", "two")),
    "adds": ("echo 3 > three.txt", ("one", "two")),
    "goes-on": ("true", ("one",)),
}


@pytest.fixture
def run(repo: Path, local_engine: LocalEngine) -> RunDirectory:
    """Execute a run of five tasks: three have dependencies, and two of these add nothing."""
    tasks = tuple(
        Task(id=name, task=command, depends_on=needs) for name, (command, needs) in TASKS.items()
    )
    flow = Workflow(name="flow", tasks=tasks)
    result = ParallelRunner(configured("-"), repo, engine=local_engine, workflow=flow).execute()
    assert {one.status for one in result.results} == {Status.SUCCESS}
    return next(iter(all_runs(Repository(repo).state_dir)))


def worker(run: RunDirectory, number: int) -> RecordedWorker:
    record = read_record(run)
    assert record is not None
    return RecordedWorker(run, record, record.workers[number - 1])


def test_base_is_the_merge_of_the_dependencies(repo: Path, run: RunDirectory) -> None:
    tips = [git(repo, "rev-parse", f"architect/parallel-{number}") for number in range(1, 6)]
    assert worker(run, 1).base == git(repo, "rev-parse", "HEAD")
    assert git(repo, "rev-parse", f"{worker(run, 3).base}^@").split() == tips[:2]
    assert [worker(run, number).base for number in (3, 4, 5)] == [tips[2], tips[2], tips[0]]
    assert git(repo, "rev-parse", f"{tips[3]}^") == tips[2]


def test_workers_that_added_nothing_have_no_backup(
    repo: Path, run: RunDirectory, local_engine: LocalEngine
) -> None:
    report = cleanup(repo, engine=local_engine)
    kept = {one.worker_id for one in report.workers if one.backup}
    assert (kept, branches(repo)) == ({1, 2, 4}, [])
    assert {one.problem for one in report.workers} == {None}
    restore(repo, workers=(4,))
    assert show(repo, "architect/parallel-4:one.txt") == "1"
    assert not list(run.path.glob("bases/*"))


def test_merged_state_depends_on_the_workers_own_commits(
    repo: Path, run: RunDirectory, local_engine: LocalEngine
) -> None:
    git(repo, "merge", "-q", "architect/parallel-1")
    cleanup(repo, engine=local_engine, wanted=Wanted(merged=True))
    assert branches(repo) == ["architect/parallel-2", "architect/parallel-4"]
    git(repo, "merge", "-q", "architect/parallel-4")
    cleanup(repo, engine=local_engine, wanted=Wanted(merged=True))
    assert branches(repo) == []
    assert read_record(run) is not None


def test_retry_starts_from_the_workers_own_base(repo: Path, run: RunDirectory) -> None:
    four = worker(run, 4)
    config = settings_to_repeat(four.record, 4, os.environ, base=four.base)
    assert config.base == git(repo, "rev-parse", "architect/parallel-4^")


def test_worker_of_a_dead_run_has_only_its_own_changes(
    repo: Path, run: RunDirectory, local_engine: LocalEngine
) -> None:
    (run.worker(4) / "result.json").unlink()
    cleanup(repo, engine=local_engine, wanted=Wanted(workers=(4,)))
    result = run.result(4)
    assert result is not None
    assert (result.reason, result.files_modified) == (Reason.CANCELLED, ["three.txt"])
