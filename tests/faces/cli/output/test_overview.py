"""Tests of the overview of a run on a terminal, and of the table of shared files."""

from pathlib import Path

from orchestrator.base.results import Reason, RunResult, Status, WorkerResult
from orchestrator.faces.cli.output.file_matrix import file_matrix
from orchestrator.faces.cli.output.overview import overview, timeline
from orchestrator.faces.cli.output.report import after_run
from orchestrator.state.record.states import RunState, WorkerState
from tests.support.reports import BASE, RUN_ID, at, ended, ended_run, judged


def changed(number: int, *files: str) -> WorkerResult:
    return WorkerResult(
        worker_id=number, branch=f"b{number}", model="default", status=Status.SUCCESS,
        worktree_path=f"/repo/{number}", files_modified=list(files),
    )  # fmt: skip


def test_files_of_several_workers_are_a_table() -> None:
    workers = [changed(1, "a", "b", "own"), changed(2, "b"), changed(3, "c", "b", "a"),
               changed(4, "z")]  # fmt: skip
    assert file_matrix(workers).splitlines() == [
        "2 files changed by more than one worker:",
        "FILE  W1  W2  W3",
        "b     x   x   x",
        "a     x   .   x",
    ]
    assert file_matrix(workers, most=1).splitlines()[-1] == "and 1 more file"
    assert file_matrix(workers[:1]) == ""
    hostile = [changed(1, "\x1b[31m\na"), changed(2, "\x1b[31m\na")]
    assert file_matrix(hostile).splitlines()[-1] == "\ufffd[31m a  x   x"


def test_a_run_ends_with_the_table_if_workers_changed_the_same_file() -> None:
    def shown(*workers: WorkerResult) -> str:
        return after_run(
            RunResult(run_id=RUN_ID, status=Status.SUCCESS, base=BASE, engine="", duration=1,
                      cost=0, results=list(workers))
        )  # fmt: skip

    assert "a     x   x\nsee conflicts: orchestrator conflicts\n" in shown(
        changed(1, "a"), changed(2, "a")
    )
    assert "FILE" not in shown(changed(1, "a"), changed(2, "b"))


def test_overview_has_a_timeline_of_the_terminals_width(tmp_path: Path) -> None:
    workers = [
        ended(tmp_path, 1, files_modified=["a"], is_critical=True),
        ended(tmp_path, 2, Status.FAILED, reason=Reason.OOM, files_modified=["a"]),
    ]
    lines = overview(ended_run(tmp_path, workers, critical_path=("worker-1",)), width=55)
    assert lines.splitlines() == [
        "orchestrator: failed, 1 of 2 workers succeeded",
        f"run {RUN_ID}, base 0123456789ab, 5.0 s, cost ?",
        "",
        "WORKER  TASK    STATE         COST  TIME   FILES",
        "W1      task 1  success       ?     2.5 s  1",
        "W2      task 2  failed (oom)  ?     2.5 s  1",
        "",
        f"W1 * {'.' * 5}{'-' * 5}{'#' * 25}{'+' * 5}",
        f"W2   {'.' * 5}{'-' * 5}{'#' * 25}{'+' * 5}",
        "5.0 s: . queue, - preparation, # agent, + saving work; * critical path",
        "",
        "1 file changed by more than one worker:",
        "FILE  W1  W2",
        "a     x   x",
    ]


def test_a_short_agent_is_visible_in_a_long_run(tmp_path: Path) -> None:
    run = ended_run(tmp_path, [ended(tmp_path, 1)], until=at(100_000))
    assert timeline(run, width=60).count("#") == 2, "in its line and in the legend"


def test_overview_of_a_live_run_without_phases(tmp_path: Path) -> None:
    worker = ended(tmp_path, 1, result=None, phases=(), state=WorkerState.QUEUED)
    live = ended_run(tmp_path, [worker], state=RunState.RUNNING, result=None)
    assert "W1      task 1  queued" in overview(live)


def test_a_judged_run_is_shown_with_its_judgement(tmp_path: Path) -> None:
    report = ended_run(tmp_path, [ended(tmp_path, n) for n in (1, 2, 3)], judgement=judged())
    shown = overview(report)
    assert "out: tests_weakened, nothing_ran" in shown
    assert shown.splitlines()[-1].endswith("worker 1 is the best (`orchestrator pick`)")
