"""Tests of `wait`, which ends like the run's own command."""

import json
import subprocess
from pathlib import Path

import pytest

from orchestrator.base.results import RunResult
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.output.report import run_json, run_table
from tests.support.cli import start
from tests.support.errors import reports
from tests.support.live import LiveRun, killed_run, newest
from tests.support.runs import past_run


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


def test_wait_for_an_ended_run_prints_its_result(repo, local_engine, capsys):
    result = past_run(repo, local_engine, "true", "exit 3")
    assert run(["wait"]) == 1
    shown = capsys.readouterr()
    assert shown.out == run_table(result) + "\n"
    assert "the work is in" in shown.err
    assert run(["wait", result.run_id[:-1], "--json"]) == 1
    assert capsys.readouterr().out == run_json(result) + "\n"


@pytest.mark.parametrize(
    ("tasks", "rest", "code"),
    [
        (("true", "exit 1"), {"fail_on": "all"}, 0),
        (("sleep 60",), {"timeout_per_worker": 0.5}, 5),
        (("true",), {}, 0),
    ],
)
def test_exit_code_is_that_of_the_run(repo, local_engine, tasks, rest, code):
    past_run(repo, local_engine, *tasks, **rest)
    assert run(["wait"]) == code


def test_wait_returns_when_the_run_ends(repo, tmp_path, local_engine):
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, live.wait_for_gate):
        waiting = start("wait", "--json", cwd=repo, stdout=-1, stderr=-1)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.5)
        live.open_gate()
        out, _ = waiting.communicate(timeout=60)
    assert waiting.returncode == 0
    assert RunResult.model_validate_json(out) == live.result


def test_missing_run_result_is_computed_from_workers(repo, local_engine, capsys):
    result = past_run(repo, local_engine, "true", "exit 3")
    directory = newest(repo).directory
    (directory.path / "result.json").unlink(missing_ok=True)
    events = directory.path / "events.ndjson"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(line for line in lines if '"run_done"' not in line))
    assert run(["wait", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert 0 < found.pop("duration") < result.duration + 1
    assert found == result.model_dump(mode="json", exclude={"duration"})


def test_recorded_run_result_is_preferred(repo, local_engine, capsys):
    result = past_run(repo, local_engine, "true")
    written = result.model_copy(update={"duration": 123.5})
    (newest(repo).directory.path / "result.json").write_text(written.model_dump_json())
    assert run(["wait", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["duration"] == 123.5


def test_died_run_is_an_error(repo, tmp_path, capsys):
    killed_run(repo, tmp_path / "engine", "echo up; sleep 60")
    run_id = newest(repo).run_id
    assert run(["wait", run_id[:18]]) == 7
    assert capsys.readouterr() == (
        "",
        f"error: the process of run {run_id} died before its workers were done\n\n"
        f"hint: resume the run: `orchestrator resume {run_id}`\n",
    )


def test_unknown_and_ambiguous_ids_are_refused(repo, local_engine):
    first, second = (past_run(repo, local_engine, "true").run_id for _ in range(2))
    with reports("run.unknown", "`x`", f"{first}, {second}"):
        assert run(["wait", "x"]) == 3
    with reports("run.ambiguous", f"`{first[:4]}`"):
        assert run(["wait", first[:4]]) == 3
    assert run(["parallel-cleanup", "--run", "x"]) == 3
