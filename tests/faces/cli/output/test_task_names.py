"""Tests that output about a workflow names the tasks."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from orchestrator.base.events import (
    Intervention,
    RunStarted,
    WorkerDone,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
)
from orchestrator.base.results import CheckResult, Reason, RunResult, Status, WorkerResult, sum_up
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.faces.cli.output.live_table import BoardView
from orchestrator.faces.cli.output.report import after_run, failure_lines, run_table
from orchestrator.faces.cli.output.views import PlainView
from tests.support.views import plain

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMES = {1: "design", 2: "backend", 3: "deploy", 4: "tidy"}
WORKFLOW = Workflow(
    name="w",
    tasks=(
        Task(id="design", task="t"),
        Task(id="backend", task="t", depends_on=("design",)),
        Task(id="deploy", task="t", depends_on=("backend",)),
        Task(id="tidy", task="t", depends_on=("design",), when="on_failure"),
    ),
)


def worker(number: int, status: Status = Status.SUCCESS, *, at: float | None = 0, **rest):
    return WorkerResult(
        worker_id=number,
        branch=f"architect/parallel-{number}",
        model="default",
        worktree_path=f"/repo/.architect-parallel-{number}",
        status=status,
        name=NAMES.get(number),
        started_at=None if at is None else NOON + timedelta(seconds=at),
        **rest,
    )


DESIGN = worker(1, duration=10, files_modified=["a"], insertions=40, deletions=2)
BACKEND = worker(
    2, Status.FAILED, at=10, duration=5, reason=Reason.AGENT_FAILED, exit_code=1,
    files_modified=["b"], insertions=1,
)  # fmt: skip
DEPLOY = worker(
    3, Status.FAILED, at=None, reason=Reason.DEPENDENCY,
    message="task `backend` failed (agent_failed)",
)  # fmt: skip
TIDY = worker(4, at=None, message="no task that it depends on failed")


def run(*results: WorkerResult, duration: float = 16) -> RunResult:
    return sum_up(results, run_id="r", base="0" * 40, engine="e", duration=duration)


def started(*names: str) -> RunStarted:
    workers = tuple(
        WorkerSpec(worker_id=number, task=f"do {name}", model=None, name=name)
        for number, name in enumerate(names, 1)
    )
    return RunStarted(run_id="run", base="0123456789abcdef", workers=workers, slots=2)


def test_event_lines_name_the_tasks():
    assert plain(
        started("design", "backend", "deploy", "tidy"),
        WorkerStage(worker_id=1, stage="check", name="tests", container="c"),
        WorkerStageDone(worker_id=1, stage="check", duration=1, problem="it broke"),
        WorkerStarted(worker_id=1, container="c", ports={3000: 49160}),
        WorkerStarted(worker_id=2, container="c"),
        Intervention(worker_id=1, trigger="silence", detail="it is silent", stops=False),
        WorkerStopping(worker_id=2, reason="timeout"),
        WorkerRetrying(worker_id=2, attempt=2, reason="timeout", delay=5),
        WorkerStarted(worker_id=2, container="c"),
        *(WorkerDone(result=result) for result in (DESIGN, BACKEND, DEPLOY, TIDY)),
    )[1:] == [
        "W1 (design): check `tests`",
        "W1 (design): check failed: it broke",
        "Started: W1 (design) - do design (running: 1)",
        "W1 (design): http://127.0.0.1:49160 -> 3000",
        "Started: W2 (backend) - do backend (running: 2)",
        "! W1 (design): it is silent",
        "W2 (backend) is being stopped: timeout",
        "W2 (backend) failed its attempt 1 (timeout), attempt 2 in 5.0 s",
        "Started: W2 (backend) - do backend (running: 2)",
        "✓ W1 (design) completed in 10.0 s: 1 file",
        "✗ W2 (backend) failed (agent_failed) after 5.0 s",
        "- W3 (deploy) skipped: task `backend` failed (agent_failed)",
        "- W4 (tidy) skipped: no task that it depends on failed",
    ]


def test_heartbeat_and_live_table_name_the_tasks(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    events = started("design"), WorkerStarted(worker_id=1, container="c")
    lines: list[str] = []
    view = PlainView(lines.append)
    board = BoardView(io.StringIO())
    for event in events:
        view(event)
        board(event)
    view.heartbeat()
    assert lines[-1].startswith("still running: W1 design (")
    paper = io.StringIO()
    Console(file=paper, width=100).print(board.render())
    assert "W1 design" in paper.getvalue()


def test_summary_names_failed_tasks_and_the_critical_path():
    lines = run_table(run(DESIGN, BACKEND, DEPLOY, TIDY), slots=2, workflow=WORKFLOW).split("\n")
    assert [line.split("  ")[0] for line in lines[1:5]] == [
        "W1 design", "W2 backend", "W3 deploy", "W4 tidy"
    ]  # fmt: skip
    assert lines[6:] == [
        "W2 (backend) failed (agent_failed)",
        "W3 (deploy) skipped (dependency): task `backend` failed (agent_failed)",
        "4 workers: 1 success, 1 failed, 2 skipped; cost ?; 16.0 s",
        "sequential 15.0 s, wall 16.0 s, 0.9x",
        "critical path: design, backend (15.0 s)",
        "47% of 2 slots used, at most 1 at the same time",
        "Failed: W2 (backend) exit 1",
    ]


def test_failed_task_without_exit_code_shows_its_reason():
    slow = worker(1, Status.TIMEOUT, reason=Reason.TIMEOUT, duration=1)
    idle = worker(2, Status.PARTIAL, exit_code=0, reason=Reason.CHECKS_FAILED, required=False)
    lines = run_table(run(slow, idle), workflow=WORKFLOW).split("\n")
    assert lines[-2:] == [
        "Timeout: W1 (design) timeout",
        "Partial, not critical: W2 (backend) checks_failed",
    ]


def test_only_failures_that_did_not_decide_are_called_not_critical():
    spare = worker(1, Status.FAILED, reason=Reason.AGENT_FAILED, required=False)
    skipped = worker(3, Status.FAILED, reason=Reason.DEPENDENCY, at=None)
    slow = worker(2, Status.TIMEOUT, reason=Reason.TIMEOUT)
    assert failure_lines([spare]) == ["Failed, not critical: W1 (design) agent_failed"]
    # A required task did not run because of it.
    assert failure_lines([spare, skipped]) == ["Failed: W1 (design) agent_failed"]
    assert [line.partition(":")[0] for line in failure_lines([spare, slow])] == [
        "Timeout", "Failed, not critical"
    ]  # fmt: skip


def test_speed_up_is_shown_for_several_workers():
    three = [worker(number, duration=5) for number in (11, 12, 13)]
    assert run_table(run(*three, duration=5), slots=4).split("\n")[-1] == (
        "sequential 15.0 s, wall 5.0 s, 3.0x"
    )
    assert "sequential" not in run_table(run(three[0], duration=5))


def test_review_order_prefers_passed_checks_and_small_changes():
    def check(passed: bool) -> CheckResult:
        return CheckResult(name="c", passed=passed, log="l")

    def changed(number: int, lines: int, *checks: bool, status: Status = Status.SUCCESS):
        passed = [check(one) for one in checks]
        return worker(number, status, files_modified=["f"], insertions=lines, checks=passed)

    results = [
        changed(11, 500, True, True),
        changed(12, 10, True, True),
        changed(13, 1, True, False),
        changed(14, 1, status=Status.FAILED),
        worker(15),
    ]
    line = next(one for one in after_run(run(*results)).split("\n") if "review" in one)
    assert line == (
        "review order: worker 12 +10 -0, checks 2/2; worker 11 +500 -0, checks 2/2; "
        "worker 13 +1 -0, checks 1/2; worker 14 +1 -0"
    )
    assert "review" not in after_run(run(results[0], worker(15)))


@pytest.mark.parametrize("name", ["\x1b[2Jx", "a\nb"])
def test_hostile_task_name_is_made_harmless(name):
    bad = DESIGN.model_copy(update={"name": name})
    lines = plain(WorkerDone(result=bad))
    assert all(line.isprintable() for line in lines)
    assert "\x1b" not in run_table(run(bad))
