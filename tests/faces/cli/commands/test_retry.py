"""Tests of `retry`: one worker of an ended run is repeated as a new run."""

import json
from pathlib import Path

import pytest

from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands import resume as command
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.history import choose_run
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_record import read_record
from tests.support.errors import reports
from tests.support.live import LiveRun, eventually
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run, show


@pytest.fixture(autouse=True)
def enter_repository(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change into the repository, and replace Docker by the local engine."""

    def runner(config: ParallelConfig, **rest: object) -> ParallelRunner:
        return ParallelRunner(config, engine=local_engine, **rest)

    monkeypatch.chdir(repo)
    monkeypatch.setattr(command, "ParallelRunner", runner)


def last_config(repo: Path) -> ParallelConfig:
    record = read_record(list(all_runs(repo / ".git" / "orchestrator"))[-1])
    assert record is not None
    return record.config


def test_retry_uses_the_same_task_model_base_and_settings(repo, local_engine, capsys):
    flag = repo.parent / "flag"
    task = f"ls > seen; echo $ORCHESTRATOR_MODEL >> seen; [ -e {flag} ]"
    shell_run(repo, local_engine, "true", task, models=("a", "b"), retry_delay=7)
    (repo / "new.txt").write_text("new\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "later")
    assert run(["retry", "2", "--quiet", "--json"]) == 1
    flag.touch()
    assert run(["retry", "2", "--run", all_ids(repo)[0], "--quiet"]) == 0
    assert "architect/parallel-4" in git(repo, "branch", "--list", "architect/*")
    # The retry starts from the base of the original run, without the later commit.
    assert show(repo, "architect/parallel-4:seen") == "a.txt\nseen\nsrc\nb"
    config = last_config(repo)
    assert (config.tasks, config.models, config.workers) == ((task,), ("b",), 1)
    assert config.retry_delay == 7
    capsys.readouterr()


def all_ids(repo: Path) -> list[str]:
    return [one.run_id for one in all_runs(repo / ".git" / "orchestrator")]


def test_unrecorded_values_come_from_the_environment(repo, local_engine, capsys, monkeypatch):
    isolation = Isolation(network="none", env={"GREETING": "hello", "OTHER": "x"})
    task = "echo $GREETING-$OTHER-$ORCHESTRATOR_API_BASE > said"
    rest = {"isolation": isolation, "api_base": "http://127.0.0.1:1/"}
    shell_run(repo, local_engine, task, **rest)
    monkeypatch.setenv("OTHER", "other")
    assert run(["retry", "1"]) == 3
    said = capsys.readouterr().err
    assert "`GREETING`, `ORCHESTRATOR_API_BASE`" in said
    assert "OTHER" not in said
    assert len(all_ids(repo)) == 1
    monkeypatch.setenv("GREETING", "again")
    monkeypatch.setenv("ORCHESTRATOR_API_BASE", "http://127.0.0.1:2/")
    assert run(["retry", "1", "--quiet"]) == 0
    assert show(repo, "architect/parallel-2:said") == "again-other-http://127.0.0.1:2/"


def test_task_that_contained_a_secret_is_refused(repo, local_engine, monkeypatch):
    monkeypatch.setenv("TOKEN", "swordfish-1234")
    isolation = Isolation(network="none", secrets=("TOKEN",))
    shell_run(repo, local_engine, "true", "echo swordfish-1234", isolation=isolation)
    with reports("task.secret"):
        assert run(["retry", "2"]) == 3
    assert run(["retry", "1", "--quiet"]) == 0


def test_worker_of_a_service_with_unrecorded_variables_is_refused(repo, local_engine, capsys):
    result = shell_run(repo, local_engine, "true")
    path = repo / ".git" / "orchestrator" / "runs" / result.run_id / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "private": ["variables of service db"]}))
    assert run(["retry", "1"]) == 3
    said = capsys.readouterr().err
    assert "`variables of service db`" in said
    assert "hint: start the task again with `orchestrator parallel`" in said


def test_retry_in_a_live_run_is_refused(repo, local_engine, tmp_path, capsys):
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, live.wait_for_gate):
        assert run(["retry", "1"]) == 3
        run_id = choose_run(list(all_runs(repo / ".git" / "orchestrator"))).run_id
        assert f"orchestrator stop 1 --run {run_id}" in capsys.readouterr().err


def test_worker_that_has_ended_is_repeated_with_another_text_beside_a_live_run(
    repo, local_engine, tmp_path
):
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, "echo 1 > a", live.wait_for_gate, workers=2):
        directory = choose_run(list(all_runs(repo / ".git" / "orchestrator"))).directory
        eventually(lambda: directory.result(1))
        again = ["retry", "1", "--run", directory.run_id, "--quiet"]
        assert run([*again, "--retry-from", "keep", "-m", "cat a > b"]) == 0
        assert run([*again, "-m", "ls > seen", "--timeout-per-worker", "5"]) == 0
        assert directory.is_live()
        config = last_config(repo)
    assert show(repo, "architect/parallel-3:b") == "1"
    assert show(repo, "architect/parallel-4:seen") == "a.txt\nseen\nsrc"
    assert (config.tasks, config.timeout_per_worker) == (("ls > seen",), 5)
    assert live.result is not None
    assert [result.turns for result in live.result.results] == [[], []]


def test_unknown_worker_is_refused(repo, local_engine, capsys):
    shell_run(repo, local_engine, "true")
    assert run(["retry", "9"]) == 3
    assert "worker 9" in capsys.readouterr().err
