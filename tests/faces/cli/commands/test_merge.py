"""Tests of `merge`, on the branches of a run."""

import json
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.state.record.states import WorkerState
from tests.support.errors import reports
from tests.support.junit_readers import gitlab_cases
from tests.support.live import LiveRun
from tests.support.repository import git
from tests.support.runs import past_run


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


ONE, TWO, THREE = "echo one > a.txt", "echo two > a.txt", "echo three > three"


def test_merge_takes_the_workers_that_succeeded(repo, local_engine, capsys):
    result = past_run(repo, local_engine, ONE, f"{THREE}; exit 3", "true")
    assert run(["merge"]) == 1
    shown = capsys.readouterr()
    before, after = result.base[:12], git(repo, "rev-parse", "main")[:12]
    assert shown.out.splitlines() == [
        f"worker 1: merged into main ({before}..{after})",
        "worker 3: main already has all of the work",
        "worker 2: not merged: the worker did not succeed (failed); name its number to merge it",
    ]
    assert shown.err == "to undo the merge: orchestrator merge --undo\n"
    assert (repo / "a.txt").read_text() == "one\n"
    assert run(["merge", "2", "--as", "squash"]) == 0
    assert (repo / "three").exists()
    assert git(repo, "status", "--porcelain") == ""


def test_conflict_is_reported_and_skipped_on_request(repo, local_engine, capsys):
    result = past_run(repo, local_engine, ONE, TWO, THREE)
    assert run(["merge"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "worker 2: not merged: conflicts with worker 1 in a.txt",
        "worker 1: not merged: nothing was merged because of worker 2",
        "worker 3: not merged: nothing was merged because of worker 2",
    ]
    assert git(repo, "rev-parse", "main") == result.base
    assert run(["merge", "--on-conflict", "skip", "--json"]) == 1
    merged = json.loads(capsys.readouterr().out)
    assert (merged["landed"], merged["target"]) == ([1, 3], "main")
    assert merged["left"] == [{
        "worker_id": 2, "reason": "conflict", "message": "conflicts with worker 1",
        "files": ["a.txt"], "others": [1], "passes": None, "fails": None, "refused": [],
    }]  # fmt: skip
    assert git(repo, "rev-parse", "main") == merged["after"]


def test_best_order_is_compared_with_the_given_one(repo, local_engine, capsys):
    wide = "for f in x y; do echo wide > $f; done"
    past_run(repo, local_engine, wide, "echo n > x", "echo n > y")
    assert run(["merge", "--order", "best", "--on-conflict", "skip", "--dry-run"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("worker 2, 3: would be merged into main")
    assert "with the best order: 1 conflict; with the given order: 2 conflicts" in shown.err
    assert not (repo / "x").exists()


def test_undo_takes_the_latest_merge_back(repo, local_engine, capsys):
    result = past_run(repo, local_engine, ONE)
    with reports("merge.unrecorded", "`main`"):
        assert run(["merge", "--undo"]) == 3
    assert run(["merge"]) == 0
    other = past_run(repo, local_engine, "true")
    capsys.readouterr()
    with reports("merge.unrecorded", other.run_id, "`main`"):
        assert run(["merge", "--undo", other.run_id]) == 3
    with reports("option.conflict", "`--undo`"):
        assert run(["merge", "--undo", "1"]) == 3
    assert run(["merge", "--undo", result.run_id]) == 0
    assert capsys.readouterr().out == (
        f"undid the merge of worker 1: main is at {result.base[:12]} again\n"
    )
    assert git(repo, "rev-parse", "main") == result.base
    assert git(repo, "status", "--porcelain") == ""


@pytest.mark.parametrize(("option", "value"), [
    ("--as", "octopus"), ("--order", "worst"), ("--on-conflict", "ours"),
])  # fmt: skip
def test_unknown_values_are_errors(repo, local_engine, option, value):
    past_run(repo, local_engine, ONE)
    with reports("option.invalid", f"option `{option}` is `{value}`"):
        assert run(["merge", option, value]) == 3


def test_running_worker_is_an_error(repo, tmp_path, local_engine, capsys):
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, live.wait_for_gate):
        assert run(["merge"]) == 3
        live.open_gate()
    said = capsys.readouterr().err
    assert WorkerState.RUNNING.sentence in said
    assert "orchestrator wait" in said


def test_cleanup_keeps_a_landing_that_can_be_undone(repo, local_engine, capsys):
    result = past_run(repo, local_engine, ONE)
    assert run(["merge"]) == 0
    assert run(["parallel-cleanup", "--merged"]) in (0, 7)
    assert git(repo, "for-each-ref", "refs/orchestrator/landed")
    assert run(["merge", "--undo"]) == 0
    assert git(repo, "rev-parse", "main") == result.base
    assert run(["merge", result.run_id, "1"]) == 0, "the result names the commit"
    assert run(["parallel-cleanup", "--purge"]) in (0, 7)
    assert f"dropped refs/orchestrator/landed/{result.run_id}" in capsys.readouterr().out
    assert git(repo, "for-each-ref", "refs/orchestrator") == ""


def test_report_of_a_merge(repo, local_engine, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    past_run(repo, local_engine, ONE, TWO, THREE)
    junit, page = tmp_path / "merge.xml", tmp_path / "merge.md"
    reports = ["--report", str(junit), "--report", str(page)]
    assert run(["merge", "--on-conflict", "skip", *reports]) == 1
    merged = [case for case in gitlab_cases(junit.read_text()) if case.suite.endswith(".merge")]
    assert [(case.name, case.status) for case in merged] == [
        ("worker-1", "success"), ("worker-2", "failed"), ("worker-3", "success"),
    ]  # fmt: skip
    assert "not merged: conflicts with worker 1 in a.txt" in page.read_text()
    assert "::group" not in capsys.readouterr().err, "nobody asked for a report in the job's log"
    assert run(["merge", "--undo", "--report", str(junit)]) == 3
    assert run(["merge", "--report", "junit=a.txt/a.xml"]) == 3
