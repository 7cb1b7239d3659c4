"""Tests of `ls`: what is left of every run."""

import json
import shutil
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.state.record import listing
from orchestrator.state.record.listing import Listing
from tests.support.live import LiveRun, killed_run, newest
from tests.support.runs import past_run


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


@pytest.fixture
def listed(capsys):
    """Return a function that returns the parsed output of `ls --json`."""

    def ls(*arguments: str) -> Listing:
        capsys.readouterr()
        assert run(["ls", "--json", *arguments]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        assert shown.out.isascii()
        return Listing.model_validate_json(shown.out)

    return ls


def test_without_runs_a_message_is_printed(capsys, listed):
    assert run(["ls"]) == 0
    assert capsys.readouterr() == (
        "",
        "no run has any worktree, branch or container; `--all` lists every run\n",
    )
    assert run(["ls", "--all"]) == 0
    assert capsys.readouterr() == ("", "there are no runs yet\n")
    assert listed().runs == ()


def test_finished_run_lists_its_worktrees_and_branches(repo, local_engine, listed):
    # What the branch has is not kept a second time; an ignored file stays with the worker.
    ignored = "echo big > .gitignore; head -c 300000 /dev/zero > big; echo é"
    result = past_run(repo, local_engine, ignored, "exit 3")
    (one,) = listed().runs
    assert (one.run_id, one.state, one.base) == (result.run_id, "finished", result.base)
    first, second = one.workers
    assert (first.state, first.status, first.reason) == ("done", "success", None)
    assert (second.status, second.reason) == ("failed", "agent_failed")
    assert (first.branch, first.container) == ("architect/parallel-1", None)
    assert first.worktree_path == result.results[0].worktree_path
    assert 300_000 <= first.disk < 2_000_000
    assert second.disk < first.disk - 250_000
    assert first.disk_complete


def test_table_of_runs(repo, local_engine, capsys):
    past_run(repo, local_engine, "printf '\033[31m'; exit 3", "true")
    shutil.rmtree(repo / ".architect-parallel-2")
    assert run(["ls"]) == 0
    heading, columns, first, second = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[1].startswith("finished, started ")
    assert columns.split() == [
        "WORKER",
        "TASK",
        "STATUS",
        "BRANCH",
        "WORKTREE",
        "CONTAINER",
        "DISK",
    ]
    assert first.split("  ")[:1] == ["1"]
    assert "\x1b" not in first
    assert "failed (agent_failed)  architect/parallel-1  .architect-parallel-1  -" in first
    assert "success                architect/parallel-2  -                      -" in second


def test_all_includes_runs_without_leftovers(repo, local_engine, listed):
    gone = past_run(repo, local_engine, "true").run_id
    cleanup(repo, engine=local_engine)
    assert listed().runs == ()
    kept = past_run(repo, local_engine, "true").run_id
    assert [one.run_id for one in listed().runs] == [kept]
    both = listed("--all").runs
    assert {one.run_id for one in both} == {gone, kept}
    branches = {one.run_id: one.workers[0].branch for one in both}
    assert branches == {gone: None, kept: "architect/parallel-1"}


def test_live_run_is_listed_as_running(repo, tmp_path, local_engine, listed):
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, live.wait_for_gate, "true", workers=1):
        (one,) = listed().runs
        container = local_engine.leftovers({})[0].id
    assert one.state == "running"
    assert [worker.state for worker in one.workers] == ["running", "queued"]
    assert [worker.container for worker in one.workers] == [container, None]
    assert one.workers[0].started_at is not None
    assert one.workers[0].status is None


def test_died_run_is_listed_as_died(repo, tmp_path, listed, capsys):
    killed_run(repo, tmp_path / "engine", "echo up; sleep 60")
    (one,) = listed().runs
    assert (one.state, one.workers[0].state, one.workers[0].status) == ("died", "running", None)
    assert one.workers[0].container is not None
    assert run(["ls"]) == 0
    assert f"{one.run_id}  died, started" in capsys.readouterr().out


def test_result_without_an_event_is_used(repo, local_engine, listed):
    past_run(repo, local_engine, "true")
    (newest(repo).directory.path / "events.ndjson").write_text('{"half')
    (one,) = listed().runs
    assert (one.state, one.workers[0].state, one.workers[0].status) == (
        "finished", "done", "success",
    )  # fmt: skip


def test_file_counting_is_bounded(repo, local_engine, listed, monkeypatch, capsys):
    past_run(repo, local_engine, "for i in $(seq 300); do echo > $i; done")
    monkeypatch.setattr(listing, "MOST_FILES", 50)
    assert not listed().runs[0].workers[0].disk_complete
    assert run(["ls"]) == 0
    assert "> " in capsys.readouterr().out.splitlines()[-1]


def test_broken_records_are_skipped(repo, local_engine, listed):
    past_run(repo, local_engine, "true")
    runs = repo / ".git" / "orchestrator" / "runs"
    (runs / "20990101-000000-ffffff").mkdir()
    (runs / "20990101-000001-ffffff").mkdir()
    (runs / "20990101-000001-ffffff" / "run.json").write_text(json.dumps({"run_id": 1}))
    assert len(listed("--all").runs) == 1
