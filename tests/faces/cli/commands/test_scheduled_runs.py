"""Tests of options for scheduled runs, and of `run-one` and `run FILE`."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.base.results import Timings
from orchestrator.faces.cli import task_run, when_busy, workflow_run
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.run_options import RunOptions
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import RunDirectory
from tests.support.errors import reports
from tests.support.repository import git

SHELL = ("--agent-cli", "shell")


@pytest.fixture
def runner(monkeypatch, result):
    """Replace the runner of both commands by an object that records its configuration."""

    class Runner:
        configs: list[Any] = []  # noqa: RUF012

        def __init__(self, config, **_: object) -> None:
            Runner.configs.append(config)

        def execute(self):
            return result

        def cancel(self, *, kill: bool = False) -> None:
            pass

    for module in (task_run, workflow_run):
        monkeypatch.setattr(module, "ParallelRunner", Runner)
    return Runner


@pytest.fixture
def flow(repository) -> str:
    (repository / "flow.yaml").write_text("tasks: [{id: a, task: 'true'}, {id: b, task: 'true'}]")
    return "flow.yaml"


def test_no_parallel_means_one_worker(flow, runner, capsys):
    run(["parallel", "a", "--task", "b", "--no-parallel", *SHELL])
    run(["spec", "run", flow, "--no-parallel", *SHELL])
    run(["parallel", "a", "--no-parallel", "--workers", "1", *SHELL])
    run(["parallel", "a", "--parallel", "--workers", "2", *SHELL])
    assert [config.workers for config in runner.configs] == [1, 1, 1, 2]
    capsys.readouterr()
    with reports("option.conflict", "`--no-parallel`", "`--workers`"):
        assert run(["parallel", "a", "--no-parallel", "--workers", "2", *SHELL]) == 3


def test_run_is_an_alias_of_spec_run(flow, runner):
    run(["run", flow, "--workers", "2", *SHELL])
    assert [config.workers for config in runner.configs] == [2]


@pytest.mark.usefixtures("repository")
def test_run_one_runs_one_worker_with_one_task(runner, capsys):
    run(["run-one", "do it", "--cpus", "0.5", *SHELL])
    (config,) = runner.configs
    assert (config.tasks, config.workers, config.limits.cpus) == (("do it",), 1, 0.5)
    capsys.readouterr()
    assert run(["run-one", "do it", "--workers", "2"]) == 3
    assert run(["run-one", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--memory" in shown
    assert "--models CSV" not in shown


@pytest.mark.usefixtures("repository", "runner")
def test_summary_is_one_line(result, capsys):
    assert run(["parallel", "a", "--summary", "--quiet", *SHELL]) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    (line,) = shown.out.splitlines()
    assert line.startswith(f"run {result.run_id}: {result.status.value}; ")
    assert f" of {len(result.results)} workers succeeded; worker " in line
    for other in ("--json", "--dry-run", "--detach"):
        assert run(["parallel", "a", "--summary", other, *SHELL]) == 3


@pytest.mark.usefixtures("repository", "runner")
def test_timings_are_a_table(result, capsys):
    assert run(["parallel", "a", "--quiet", *SHELL]) == 1
    without = capsys.readouterr().out
    assert run(["parallel", "a", "--timings", "--quiet", *SHELL]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(without)
    heading, *rows = shown.removeprefix(without).split("\n")[1:-1]
    steps = (step.upper() for step in Timings.model_fields)
    assert heading.split() == ["WORKER", *steps, "CPU", "MEMORY"]
    assert len(rows) == len(result.results)
    for other in ("--json", "--summary", "--dry-run", "--detach"):
        with reports("option.conflict", "`--timings`"):
            assert run(["parallel", "a", "--timings", other, *SHELL]) == 3


@pytest.mark.usefixtures("runner")
def test_when_busy_waits_or_exits(repository, runner, monkeypatch, capsys):
    live = RunDirectory(Repository(repository).state_dir / "runs" / "20260101-000000-abcdef")
    live.path.mkdir(parents=True)
    (live.path / "lease").touch()
    assert live.take_over()
    assert run(["parallel", "a", "--when-busy", "leave", *SHELL]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (
        "",
        f"run {live.run_id} is still running: nothing was started\n",
    )
    assert run(["parallel", "a", "--when-busy", "leave", "--quiet", *SHELL]) == 0
    assert capsys.readouterr().err == ""
    assert runner.configs == []
    ended: list[float] = []

    def end(seconds: float) -> None:
        assert runner.configs == []
        ended.append(seconds)
        live.release()

    monkeypatch.setattr(when_busy, "time", SimpleNamespace(sleep=end))
    assert run(["parallel", "a", "--when-busy", "wait", "--quiet", *SHELL]) == 1
    assert len(ended) == 1
    assert len(runner.configs) == 1
    with reports("option.invalid", "`--when-busy`"):
        assert run(["parallel", "a", "--when-busy", "sometimes", *SHELL]) == 3


@pytest.mark.usefixtures("runner")
def test_two_waiting_runs_do_not_start_together(repository):
    repository_ = Repository(repository)
    repository_.state_dir.mkdir(parents=True, exist_ok=True)
    options = RunOptions(when_busy="wait", quiet=True)
    with when_busy.turn(options), (repository_.state_dir / "turn").open("w") as other:
        assert (
            when_busy._busy(repository_, other) == "another run of this repository is still running"
        )
    with (repository_.state_dir / "turn").open("w") as other:
        assert when_busy._busy(repository_, other) is None


def test_fetch_updates_the_base_first(repository, tmp_path, capsys):
    remote, other = tmp_path / "remote.git", tmp_path / "other"
    git(repository, "init", "-q", "--bare", str(remote))
    git(repository, "remote", "add", "origin", str(remote))
    git(repository, "push", "-q", "origin", "HEAD:refs/heads/main")
    git(repository, "clone", "-q", "-b", "main", str(remote), str(other))
    who = ("-c", "user.name=n", "-c", "user.email=e@example.invalid")
    git(other, *who, "commit", "-q", "--allow-empty", "-m", "later work")
    git(other, "push", "-q", "origin", "HEAD:main")
    command = ["parallel", "true", *SHELL, "--network", "none"]
    before = git(repository, "rev-parse", "origin/main")
    # Without an engine, the run ends after the fetch.
    assert run([*command, "--base", "origin/main"]) == 7
    assert git(repository, "rev-parse", "origin/main") == before
    assert run([*command, "--base", "origin/main", "--fetch"]) == 7
    later = git(other, "rev-parse", "HEAD")
    assert git(repository, "rev-parse", "origin/main") == later
    capsys.readouterr()
    for base in ("origin/main", ":/later", "origin/main~0", later[:9], "refs/remotes/origin/main"):
        assert run([*command, "--base", base, "--dry-run", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["base"] == later
    for base in (":/no such text", "HEAD:file", "-q", "nothing", "^HEAD"):
        assert run([*command, f"--base={base}", "--dry-run"]) == 3
    with reports("base.not-remote", "`HEAD`"):
        assert run([*command, "--fetch"]) == 3
    git(repository, "remote", "set-url", "origin", str(tmp_path / "gone"))
    assert run([*command, "--base", "origin/main", "--fetch"]) == 3
    assert "`git fetch` failed" in capsys.readouterr().err
