"""Tests of the status table, and of the file `status.md`."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.base.events import (
    Notice,
    RunStarted,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerRetrying,
    WorkerStarted,
)
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.state.record.status_file import StatusFile, StatusTable
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
CHAIN = Workflow(
    name="w",
    tasks=(
        Task(id="auth", task="JWT migration"),
        Task(id="api", task="Endpoint versioning", depends_on=("auth",)),
        Task(id="docs", task="Docs", depends_on=("auth", "api")),
    ),
)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


def specs(workflow: Workflow) -> tuple[WorkerSpec, ...]:
    return tuple(
        WorkerSpec(worker_id=number, task=task.task, model=None, name=task.id)
        for number, task in enumerate(workflow.tasks, 1)
    )


def started(*workers: WorkerSpec) -> RunStarted:
    return RunStarted(run_id="r", base="b", workers=workers or specs(CHAIN), slots=2, at=NOON)


def done(number: int, status: Status, reason: Reason | None = None, *, minute=0, ran=True):
    names = {1: "auth", 2: "api", 3: "docs"}
    result = WorkerResult(
        worker_id=number,
        branch="b",
        model="m",
        worktree_path="/w",
        name=names[number],
        status=status,
        reason=reason,
        started_at=NOON if ran else None,
    )
    return WorkerDone(result=result, at=at(minute))


def rows(board: StatusTable) -> list[list[str]]:
    lines = board.text().splitlines()
    assert lines[:2] == [
        "| Agent | Task | Status | Last Update |",
        "|-------|------|--------|-------------|",
    ]
    return [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines[2:]]


def states(*events) -> list[str]:
    board = StatusTable(CHAIN)
    for event in events:
        board.apply(event)
    return [row[2] for row in rows(board)]


def test_table_of_a_run():
    board = StatusTable(CHAIN)
    for event in (
        started(),
        WorkerPreparing(worker_id=1, at=at(1)),
        WorkerStarted(worker_id=1, container="c", at=at(2)),
        done(1, Status.SUCCESS, minute=23),
        WorkerPreparing(worker_id=2, at=at(30)),
    ):
        board.apply(event)
    assert board.text() == (
        "| Agent | Task | Status | Last Update |\n"
        "|-------|------|--------|-------------|\n"
        "| auth | JWT migration | Complete | 12:23:00 UTC |\n"
        "| api | Endpoint versioning | In progress | 12:30:00 UTC |\n"
        "| docs | Docs | Blocked | 12:00:00 UTC |\n"
    )


def test_task_is_blocked_until_its_dependencies_ended():
    assert states(started()) == ["Waiting", "Blocked", "Blocked"]
    assert states(started(), done(1, Status.SUCCESS)) == ["Complete", "Waiting", "Blocked"]


def test_retried_task_waits_again():
    retrying = WorkerRetrying(worker_id=1, attempt=2, reason="oom", delay=1)
    assert states(started(), WorkerPreparing(worker_id=1), retrying)[0] == "Waiting"


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (done(1, Status.FAILED, Reason.OOM), "Failed"),
        (done(1, Status.TIMEOUT, Reason.TIMEOUT), "Failed"),
        (done(1, Status.PARTIAL, Reason.CHECKS_FAILED), "Failed"),
        (done(1, Status.FAILED, Reason.SETUP_FAILED, ran=False), "Failed"),
        (done(1, Status.FAILED, Reason.CANCELLED), "Failed"),
        (done(1, Status.FAILED, Reason.CANCELLED, ran=False), "Skipped"),
        (done(1, Status.FAILED, Reason.DEPENDENCY, ran=False), "Skipped"),
        (done(1, Status.SUCCESS, ran=False), "Skipped"),
        (done(1, Status.FAILED, Reason.CONFLICT, ran=False), "Blocked"),
    ],
)
def test_state_of_an_ended_task(end, state):
    assert states(started(), end)[0] == state


def test_only_transitions_change_the_table():
    board = StatusTable(CHAIN)
    assert board.apply(started())
    assert board.apply(WorkerPreparing(worker_id=1, at=at(1)))
    before = board.text()
    assert not board.apply(WorkerStarted(worker_id=1, container="c", at=at(2)))
    assert not board.apply(WorkerHarvesting(worker_id=1))
    assert not board.apply(Notice(message="m"))
    assert not board.apply(WorkerPreparing(worker_id=9))
    assert board.text() == before


def test_workers_without_a_workflow_have_numbers():
    board = StatusTable()
    board.apply(started(WorkerSpec(worker_id=7, task="t", model=None)))
    assert rows(board) == [["W7", "t", "Waiting", "12:00:00 UTC"]]


def test_task_text_is_escaped():
    bad = "a | b\n| x | y | Complete | 1 |\r\x1b[2J`<script>`*_[l](u)&amp; \u202e" + "z" * 1000
    board = StatusTable()
    board.apply(started(WorkerSpec(worker_id=1, task=bad, model=None)))
    [row] = rows(board)
    assert len(row) == 4
    assert row[1].startswith("a \\| b \\| x \\| y \\| Complete")
    assert row[1].isprintable()
    assert "<" not in row[1].replace("\\<", "")
    assert len(row[1]) < 200


def recorded(tmp_path, **more) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.create(
        RunRecord(
            run_id="r",
            created_at=NOON,
            top=tmp_path,
            base="b",
            engine="e",
            config=ParallelConfig(tasks=("t",)),
            workers=specs(CHAIN),
            **more,
        ).public_json()
    )
    return directory


def test_file_equals_the_table(tmp_path):
    directory = recorded(tmp_path, workflow=CHAIN)
    file = StatusFile(directory)
    path = directory.path / "status.md"
    file(started())
    assert path.read_text().count("Blocked") == 2
    file(done(1, Status.SUCCESS))
    assert path.read_text().count("Blocked") == 1
    inode = path.stat().st_ino
    file(Notice(message="nothing new"))
    assert path.stat().st_ino == inode
    directory.release()


def test_simultaneous_ends_are_all_recorded(tmp_path):
    directory = recorded(tmp_path)
    file = StatusFile(directory)
    file(started())
    ends = [done(number, Status.SUCCESS) for number in (1, 2, 3)]
    threads = [threading.Thread(target=file, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (directory.path / "status.md").read_text().count("Complete") == 3
    directory.release()


def test_removed_run_directory_causes_no_error(tmp_path):
    StatusFile(RunDirectory(tmp_path / "gone"))(started())
    assert not (tmp_path / "gone").exists()
