"""Tests of `parallel`: from options to the runner, and from results to stdout and the exit code."""

import json
import os
import signal
import subprocess
import threading

import pytest

from orchestrator.base.errors import ImageNotFoundError
from orchestrator.base.events import Notice
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli import task_run as command
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.signals import Interruption
from tests.support.errors import reports

HEAD = ("git", "rev-parse", "HEAD")


@pytest.fixture
def runner(monkeypatch, result):
    """Replace the runner by an object that records its configuration and returns a result."""

    class Runner:
        config: ParallelConfig
        error: Exception | None = None
        signals: tuple[signal.Signals, ...] = ()
        cancelled: list[bool] = []  # noqa: RUF012
        released = threading.Event()
        run_id = None

        def __init__(self, config, *, emit=None) -> None:
            Runner.config = config
            Runner.cancelled = []
            self._emit = emit

        def execute(self):
            self._emit(Notice(message="look"))
            for number in self.signals:
                Runner.released.clear()
                os.kill(os.getpid(), number)
                assert Runner.released.wait(60)
            if self.error:
                raise self.error
            return result

        def cancel(self, *, kill: bool = False) -> None:
            Runner.cancelled.append(kill)
            Runner.released.set()

    monkeypatch.setattr(command, "ParallelRunner", Runner)
    return Runner


@pytest.mark.usefixtures("repository")
def test_every_option_reaches_the_runner(runner, monkeypatch):
    monkeypatch.setenv("MINE", "caller")
    run([
        "parallel", "one", "--task", "two", "--task", "three", "--workers", "2",
        "--models", "a, b", "--agent", "plan", "--budget-per-worker", "2.5",
        "--timeout-per-worker", "0", "--api-base", "http://localhost:1", "--max-steps", "9",
        "--agent-cli", "shell", "--image", "img", "--cpus", "0.5", "--memory", "256m",
        "--pids", "99", "--grace", "1", "--runtime", "runsc", "--network", "open",
        "--env", "A=1", "--env", "MINE", "--ports", "3000,3010", "--base", "main",
        "--include-uncommitted", "--fail-on", "all", "--quiet",
    ])  # fmt: skip
    assert runner.config == ParallelConfig(
        tasks=("one", "two", "three"), workers=2, models=("a", "b"), agent="plan",
        budget_per_worker=2.5, timeout_per_worker=0, api_base="http://localhost:1", max_steps=9,
        agent_cli="shell", image="img", base="main", include_uncommitted=True, fail_on="all",
        limits=Limits(cpus=0.5, memory=256 * 1024**2, pids=99, grace=1),
        isolation=Isolation(runtime="runsc", env={"A": "1", "MINE": "caller"}, ports=(3000, 3010)),
    )  # fmt: skip


def test_settings_without_options_are_not_set(repository, runner):
    (repository / "orchestrator.yaml").write_text("parallel_runs: {include_uncommitted: true}")
    named = ["--config", "orchestrator.yaml"]
    run(["parallel", "one", "--quiet", *named])
    assert runner.config.model_fields_set == {"tasks", "include_uncommitted"}
    run(["parallel", "one", "--quiet", *named, "--no-include-uncommitted"])
    assert not runner.config.include_uncommitted


@pytest.mark.usefixtures("repository", "runner")
@pytest.mark.parametrize("empty", ["", "  "])
def test_empty_task_argument_is_an_error(empty):
    with reports("task.empty"):
        assert run(["parallel", empty]) == 3


def test_help_shows_the_real_defaults(capsys):
    run(["parallel", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("this machine. [default: 3]", "program. [default: build]", "[default: architect]",
                 "the limit. [default: 600]", "the agent. [default: 50]", "[default: 4g]",
                 "[default: 512]", "is stopped. [default: 10]", "[default: HEAD]",
                 "[default: any]", "[default: open]"):  # fmt: skip
        assert text in shown


@pytest.mark.usefixtures("repository", "runner")
def test_stdout_contains_only_the_json(capsys, result):
    assert run(["parallel", "one", "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads(result.model_dump_json())
    assert list(json.loads(shown.out)) == [
        "run_id", "status", "base", "engine", "duration", "cost", "results"
    ]  # fmt: skip
    assert shown.err.startswith("note: look\n")


@pytest.mark.usefixtures("repository", "runner")
def test_quiet_leaves_stderr_empty(capsys):
    run(["parallel", "one", "--quiet"])
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("WORKER")


@pytest.mark.usefixtures("repository", "runner")
@pytest.mark.parametrize(("fail_on", "code"), [("any", 1), ("all", 0)])
def test_exit_code_follows_from_the_results(fail_on, code):
    assert run(["parallel", "one", "--quiet", "--fail-on", fail_on]) == code


@pytest.mark.usefixtures("repository")
def test_runner_error_is_printed_with_its_exit_code(runner, capsys):
    runner.error = ImageNotFoundError("no such image: `x`", key="image.missing", hint="build it")
    assert run(["parallel", "one", "--quiet"]) == 3
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "error: no such image: `x`\n\nhint: build it\n")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_cancels_the_run_and_prints_the_table(runner, capsys, number, code):
    runner.signals = (number, number)
    assert run(["parallel", "one"]) == code
    assert runner.cancelled == [False, True]
    shown = capsys.readouterr()
    assert shown.out.startswith("WORKER")
    assert (
        "note: stopping: workers have 10 s to end; interrupt again to kill them\n"
        "note: killing the containers\n"
    ) in shown.err


@pytest.mark.usefixtures("repository")
def test_error_after_a_signal_exits_with_the_signals_code(runner, capsys):
    runner.signals = (signal.SIGTERM,)
    runner.error = ImageNotFoundError("late", key="image.missing")
    assert run(["parallel", "one", "--quiet"]) == 143
    assert capsys.readouterr().err == "error: late\n"


def test_signal_handlers_are_restored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with Interruption(lambda _: None) as interruption:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not interrupt
        assert signal.getsignal(signal.SIGINT) is interrupt
        assert interruption.exit_code is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_dry_run_prints_the_plan_and_changes_nothing(repository, capsys):
    base = subprocess.run(HEAD, capture_output=True, text=True, check=True).stdout.strip()
    before = sorted(path for path in repository.rglob("*"))
    assert run([
        "parallel", "optimize", "--models", "gpt-4o,claude-sonnet-4-6", "--workers", "3",
        "--dry-run",
    ]) == 0  # fmt: skip
    assert sorted(path for path in repository.rglob("*")) == before
    where = repository / ".architect-parallel-"
    assert capsys.readouterr().out == (
        f"WORKER  TASK      MODEL              BRANCH                WORKTREE\n"
        f"1       optimize  gpt-4o             architect/parallel-1  {where}1\n"
        f"2       optimize  claude-sonnet-4-6  architect/parallel-2  {where}2\n"
        f"3       optimize  default            architect/parallel-3  {where}3\n"
        f"\nbase: {base}\nimage: orchestrator/worker:architect\ntimeout: 10 min\n"
        "limits: 2 or all CPUs, 4g memory, 1g tmp, 8g disk, 512 pids, 1000000 inodes\n"
        "idle timeout: none\ngrace: 10.0 s\nnetwork: open\nhistory: full\n"
    )


@pytest.mark.usefixtures("repository")
def test_dry_run_lists_names_of_variables_and_unchecked_parts(monkeypatch, capsys):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not shown")
    monkeypatch.setenv("TOKEN", "not shown either")
    assert run([
        "parallel", "a", "--workers", "1", "--models", "gpt-4o", "--dry-run", "--ports", "3000,80",
        "--env", "CI=hidden", "--secret", "TOKEN", "--allow", "10.0.0.1:80", "--grace", "3",
        "--idle-timeout", "60", "--runtime", "crun",
    ]) == 0  # fmt: skip
    shown = capsys.readouterr()
    for line in (
        "env: ANTHROPIC_API_KEY, CI", "secrets: TOKEN", "ports: PORT=3000, API_PORT=80",
        "grace: 3.0 s", "idle timeout: 1 min", "allow: 10.0.0.1:80", "runtime: crun",
        "network: open",
    ):  # fmt: skip
        assert line in shown.out.splitlines()
    assert "hidden" not in shown.out
    assert "not shown" not in shown.out
    assert shown.err == (
        "no API key: `gpt-4o` needs `OPENAI_API_KEY`\n"
        "not checked: engine, images and capacity of the machine (use `orchestrator doctor`)\n"
    )
    run(["parallel", "a", "--workers", "1", "--dry-run", "--quiet"])
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--allow", "not a host"], "`--allow`: cannot resolve `not a host`"),
        (["--runtime", "runsc"], "runtime `runsc` is not supported with a network"),
        (["--agent-cli", "nobody"], "nobody"),
        (["--base", "nowhere"], "no such commit: `nowhere`"),
    ],
)
def test_dry_run_makes_all_checks_without_engine(arguments, message, capsys):
    assert run(["parallel", "a", "--workers", "1", "--dry-run", *arguments]) == 3
    assert message in capsys.readouterr().err


def test_dry_run_prints_json(repository, capsys):
    run(["parallel", "a", "--workers", "1", "--timeout-per-worker", "0", "--dry-run", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert plan["timeout"] is None
    assert plan["workers"] == [{
        "worker_id": 1, "task": "a", "model": "default", "branch": "architect/parallel-1",
        "worktree_path": f"{repository}/.architect-parallel-1",
    }]  # fmt: skip


def test_outside_a_repository_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with reports("repository.missing", tmp_path):
        assert run(["parallel", "a"]) == 3


def test_discovered_file_is_trusted_only_if_named(repository, runner, capsys):
    file = repository / "orchestrator.yaml"
    file.write_text("parallel_runs: {api_base: http://evil.invalid, agent: plan}")
    assert run(["parallel", "one", "--quiet"]) == 3
    assert capsys.readouterr().err == (
        f"error: {file}:1: `parallel_runs.api_base` is not accepted from a file that was found "
        f"in the repository\n\nhint: pass `--config {file}` if you trust the author of that file\n"
    )
    run(["parallel", "one", "--quiet", "--config", str(file)])
    assert runner.config.api_base == "http://evil.invalid"


@pytest.mark.usefixtures("repository")
def test_all_mistakes_of_a_command_line_are_listed(capsys):
    assert run(["parallel", "--workers", "12", "--memory", "lots", "--fail-on", "some"]) == 3
    assert capsys.readouterr().err == (
        "error: 4 mistakes in the configuration:\n"
        "  option `--workers` is `12`: must be a whole number from 1 to 10 (`max_workers`) or "
        "`auto`\n"
        "  option `--fail-on` is `some`: must be one of `any`, `all`\n"
        "  option `--memory` is `lots`: a size must be a number with a unit, such as 512m or 4g\n"
        "  no task was given\n\n"
        'hint: pass a task as `orchestrator parallel "TASK"`, or several tasks with `--task`\n'
    )
