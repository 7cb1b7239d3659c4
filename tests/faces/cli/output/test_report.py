"""Tests of the printed result of a run."""

import pytest

from orchestrator.base.results import NetworkCounts, Reason, RunResult, Status
from orchestrator.base.text.quantities import count, duration, money
from orchestrator.faces.cli.output.formats import table
from orchestrator.faces.cli.output.report import after_run, run_table
from orchestrator.repository.incoming.kept_refs import note_of_refs


def test_table_is_not_shortened_without_a_terminal(result):
    assert run_table(result) == (
        "WORKER  TASK                  MODEL    STATUS   STEPS  COST     DURATION   FILES\n"
        "1       tests for auth        gpt-4o   success  7      $0.0123  12.3 s     2\n"
        "2       tests for \ufffd[31musers  default  failed   0      ?        2 min 5 s  0\n"
        "3       見出し                default  timeout  0      ?        10 min     0\n"
        "\n"
        "worker 2 failed (oom): over its 512 MiB\n"
        "  log: /logs/2\n"
        "worker 3 timeout\n"
        "  log: /logs/3\n"
        "3 workers: 1 success, 1 failed, 1 timeout; cost $0.0123 and 2 unknown; 10 min 1 s"
    )


def test_table_fits_the_terminal(result):
    lines = run_table(result, width=74).splitlines()
    assert lines[2].startswith("2       tests for \ufffd[3…  default")
    assert max(map(len, lines[:4])) <= 74


def test_next_steps_for_several_workers(result):
    assert after_run(result) == (
        "the work is in /repo/.architect-parallel-1 to .architect-parallel-3, "
        "branches architect/parallel-1 to architect/parallel-3\n"
        "see a worker's changes: git diff 0123456789ab architect/parallel-1\n"
        "remove worktrees and branches: orchestrator parallel-cleanup"
    )


def test_next_steps_leave_out_workers_that_were_removed_during_the_run(result, tmp_path):
    kept = result.results[1].model_copy(update={"worktree_path": str(tmp_path)})
    left = after_run(result.model_copy(update={"results": [result.results[0], kept]}))
    assert left.splitlines()[:2] == [
        f"the work is in {tmp_path}, branch architect/parallel-2",
        "see a worker's changes: git diff 0123456789ab architect/parallel-2",
    ]


def test_next_steps_for_one_worker(result):
    one = RunResult(**{**result.model_dump(), "results": result.results[:1]})
    assert after_run(one).splitlines()[0] == (
        "the work is in /repo/.architect-parallel-1, branch architect/parallel-1"
    )
    logged = one.results[0].model_copy(update={"log": "/logs/1"})
    told = after_run(one.model_copy(update={"results": [logged]}))
    assert "see a worker's output: /logs/1/stdout.log" in told.splitlines()
    assert "orchestrator continue" not in told
    failed = logged.model_copy(update={"reason": Reason.CHECKS_FAILED})
    assert "orchestrator continue 1 --checks" in after_run(
        one.model_copy(update={"results": [failed]})
    )


def test_unknown_cost_is_not_shown_as_zero(result):
    unknown = RunResult(**{**result.model_dump(), "results": result.results[1:]})
    assert "; cost ?; " in run_table(unknown)
    free = result.results[0].model_copy(update={"cost": 0.0, "cost_known": True})
    known = result.model_copy(update={"results": [free], "cost": 0.0, "status": Status.SUCCESS})
    assert run_table(known).splitlines()[-1] == "1 worker: 1 success; cost $0.00; 10 min 1 s"


def test_total_is_the_sum_of_the_shown_costs(result):
    costs = (0.03484, 0.03244, 0.0)
    workers = [
        worker.model_copy(update={"cost": cost, "cost_known": True})
        for worker, cost in zip(result.results, costs, strict=True)
    ]
    shown = run_table(result.model_copy(update={"results": workers, "cost": sum(costs)}))
    assert all(text in shown for text in ("$0.0348", "$0.0324"))
    assert "; cost $0.0672; " in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1 min"), (61, "1 min 1 s"), (3599.6, "1 h"),
     (3600, "1 h"), (3725, "1 h 2 min")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_money_and_counts():
    assert [money(1.234), money(0.001234), money(0), money(0, known=False)] == [
        "$1.23", "$0.0012", "$0.00", "?"
    ]  # fmt: skip
    assert [count(1, "file"), count(0, "file")] == ["1 file", "0 files"]


def test_wide_characters_are_cut_by_display_width():
    rows = [("a", "見出し見出し見出し", "b"), ("a", "x" * 10, "b")]
    assert table(rows, width=16) == "a  見出し見 …  b\na  xxxxxxxxxx  b"


def test_kept_refs_and_notes_of_a_success_are_printed(result):
    refs = [f"refs/orchestrator/kept/R/1/heads/{n}" for n in range(7)]
    left = {"kept_refs": refs, "message": "a file over 100 MiB was left out: big\x1b[2J"}
    good = result.results[0].model_copy(update=left)
    bad = result.results[1].model_copy(update={"kept_refs": refs[:1]})
    lines = run_table(result.model_copy(update={"results": [good, bad]})).splitlines()
    assert "worker 1: a file over 100 MiB was left out: big\ufffd[2J" in lines
    (first,) = [
        line for line in lines if line.startswith("worker 1: commits on no branch are kept in ")
    ]
    assert first.startswith(f"worker 1: commits on no branch are kept in {refs[0]}, {refs[1]}, ")
    assert first.endswith(f"{refs[4]} and 2 more: git for-each-ref refs/orchestrator/kept")
    assert f"worker 2: commits on no branch are kept in {refs[0]}" in lines
    named = good.model_copy(update={"kept_refs": refs[:1], "message": note_of_refs(refs[:1])[0]})
    lines = run_table(result.model_copy(update={"results": [named]})).splitlines()
    assert [line for line in lines if "kept" in line] == [
        f"worker 1: commits on no branch are kept in {refs[0]}"
    ]


def test_connections_of_all_workers_are_one_line(result):
    assert "network:" not in run_table(result)
    workers = [
        worker.model_copy(
            update={"network": NetworkCounts(allowed=2, refused=n, sent=10, received=1000)}
        )
        for n, worker in enumerate(result.results[:2])
    ]
    shown = run_table(result.model_copy(update={"results": workers}))
    expected = "network: 4 connections, 20 bytes sent, 2 KiB received; 1 refused: see "
    assert f"{expected}`orchestrator network log`" in shown.splitlines()
