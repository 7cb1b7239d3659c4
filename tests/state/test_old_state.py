"""Tests that the state written by an earlier version can be read."""

import json
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands import resume as retry_command
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_record import read_record
from tests.support.local_engine import LocalEngine
from tests.support.old_state import restore_old_state
from tests.support.repository import git
from tests.support.runs import show

CLEANED = "20261122-052930-aff1d9"
TASKS = "20261122-052948-d18ff2"
WORKFLOW = "20261122-053001-07e10d"
KILLED = "20261122-053014-355f3b"
FAILED, SUCCESS, TIMEOUT = Status.FAILED, Status.SUCCESS, Status.TIMEOUT


@pytest.fixture
def shop(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001
    """Return the recorded repository, as the current directory."""
    repository = restore_old_state("2887ec5", tmp_path / "shop")
    monkeypatch.chdir(repository)
    return repository


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command, check its exit code, and return its stdout."""
    capsys.readouterr()
    assert run([*arguments]) == code, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.usefixtures("shop")
def test_ls_lists_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(printed(capsys, "ls", "--all", "--json"))["runs"]

    assert [(one["run_id"], one["state"]) for one in listed] == [
        (CLEANED, "finished"), (TASKS, "finished"), (WORKFLOW, "finished"), (KILLED, "died"),
    ]  # fmt: skip
    workers = {
        (one["run_id"], worker["worker_id"]): (worker["state"], worker["status"], worker["name"])
        for one in listed
        for worker in one["workers"]
    }
    assert workers == {
        (CLEANED, 1): ("done", SUCCESS, None),
        (TASKS, 1): ("done", SUCCESS, None),
        (TASKS, 2): ("done", FAILED, None),
        (TASKS, 3): ("done", TIMEOUT, None),
        (WORKFLOW, 4): ("done", SUCCESS, "build"),
        (WORKFLOW, 5): ("done", SUCCESS, "check"),
        (WORKFLOW, 6): ("done", FAILED, "break"),
        (WORKFLOW, 7): ("done", FAILED, "publish"),
        (KILLED, 7): ("done", SUCCESS, None),
        (KILLED, 8): ("running", None, None),
        (KILLED, 9): ("preparing", None, None),
    }


@pytest.mark.usefixtures("shop")
def test_logs_and_events_of_a_recorded_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "logs", "1", "--run", TASKS) == "wrote hello.txt\n"
    assert "[W6 err] no" in printed(capsys, "logs", "--run", WORKFLOW)
    events = [json.loads(line) for line in printed(capsys, "events", "--run", KILLED).splitlines()]
    assert [one["type"] for one in events].count("worker_started") == 2


@pytest.mark.usefixtures("shop")
def test_result_of_a_finished_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads(printed(capsys, "wait", "--json", WORKFLOW, code=1))["results"]
    assert [(one["name"], one["reason"]) for one in results] == [
        ("build", None), ("check", None), ("break", "agent_failed"), ("publish", "dependency"),
    ]  # fmt: skip
    assert "W7 publish" in printed(capsys, "watch", WORKFLOW, code=1)


@pytest.mark.usefixtures("shop")
def test_recorded_workflow_is_still_valid(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = printed(capsys, "spec", "graph", "flow.yaml", "--format", "mermaid")
    assert all(task in drawn for task in ("build", "check", "break", "publish"))


@pytest.mark.parametrize(
    ("run_id", "worker", "kept"), [(TASKS, 2, "half.txt"), (WORKFLOW, 6, "build.txt")]
)
def test_worker_can_be_retried(
    shop: Path,
    local_engine: LocalEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    run_id: str,
    worker: int,
    kept: str,
) -> None:
    """A worker of a workflow starts again from the commits of its dependencies."""
    monkeypatch.setattr(
        retry_command,
        "ParallelRunner",
        lambda config, **rest: ParallelRunner(config, engine=local_engine, **rest),
    )
    shown = printed(capsys, "retry", str(worker), "--run", run_id, "--quiet", "--json", code=1)

    (result,) = json.loads(shown)["results"]
    assert (result["reason"], result["task"]) == (Reason.AGENT_FAILED, recorded_task(shop, worker))
    assert kept in git(shop, "ls-tree", "--name-only", result["branch"]).splitlines()


def recorded_task(shop: Path, worker: int) -> str:
    records = [read_record(one) for one in all_runs(shop / ".git" / "orchestrator")]
    return next(
        spec.task for record in records if record for spec in record.workers
        if spec.worker_id == worker
    )  # fmt: skip


def test_backup_can_be_restored(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(shop, "worktree", "remove", "--force", ".architect-parallel-1")
    git(shop, "branch", "-D", "architect/parallel-1")
    printed(capsys, "restore", "1", "--run", CLEANED)

    assert (shop / ".architect-parallel-1" / "old.txt").read_text() == "old\n"
    assert show(shop, "architect/parallel-1:old.txt") == "old"


def test_a_cleanup_removes_worktrees_and_keeps_commits(
    shop: Path, local_engine: LocalEngine
) -> None:
    before = git(shop, "rev-parse", "architect/parallel-1")
    report = cleanup(shop, engine=local_engine, run_id=TASKS)

    assert [one.worker_id for one in report.workers] == [1, 2, 3]
    backup = f"refs/orchestrator/backup/{TASKS}/1"
    assert git(shop, "rev-parse", backup) == before
    assert not list(shop.glob(".architect-parallel-[1-3]"))
