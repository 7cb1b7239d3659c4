"""Every option and every setting is kept or refused: none is accepted and ignored.

Each has a row that says how that is observed: by a look at one run on the local engine, in which
all of them are set, or by a test of its own. A new option without a row fails here.
"""

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from orchestrator.cli.app import COMMANDS as EVERY_COMMAND
from orchestrator.cli.app import app, run
from orchestrator.cli.commands.parallel import parallel
from orchestrator.cli.commands.spec_run import run as spec_run
from orchestrator.config.container import Isolation, Limits
from orchestrator.config.fields import FIELDS, OPTIONS, option_of
from orchestrator.config.needs import NEEDS
from orchestrator.config.option import Group
from orchestrator.config.project import Check, Project, Service
from orchestrator.config.run import ParallelConfig, Triggers
from orchestrator.engine.labels import ROLE
from orchestrator.engine.protocol import EngineFeatures
from orchestrator.engine.spec import BindMount, ContainerSpec, TmpfsMount
from orchestrator.errors import ConfigError
from orchestrator.events import Event, RunStarted
from orchestrator.results import RunResult
from orchestrator.runs.runner import ParallelRunner
from orchestrator.workflow.model import Task, WorkerSettings, Workflow
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.repository import git

ROOT = Path(__file__).parents[2]
MIB = 1024**2

# --- Options: each arrives in the settings, or is seen by the test that is named.

FLOW = "tasks: [{id: one, task: 'true'}]"
SETTINGS_OF_OPTIONS: dict[str, tuple[list[str], tuple[str, ...], Any]] = {
    "workers": (["--workers", "2"], ("workers",), 2),
    "models": (["--models", "a,b"], ("models",), ("a", "b")),
    "model": (["--model", "m"], ("model",), "m"),
    "agent": (["--agent", "plan"], ("agent",), "plan"),
    "budget_per_worker": (["--budget-per-worker", "2.5"], ("budget_per_worker",), 2.5),
    "timeout_per_worker": (["--timeout-per-worker", "7"], ("timeout_per_worker",), 7),
    "api_base": (["--api-base", "http://localhost:1"], ("api_base",), "http://localhost:1"),
    "max_steps": (["--max-steps", "9"], ("max_steps",), 9),
    "agent_cli": (["--agent-cli", "claude"], ("agent_cli",), "claude"),
    "image": (["--image", "img"], ("image",), "img"),
    "preset": (["--preset", "ci"], ("preset",), "ci"),
    "cpus": (["--cpus", "0.5"], ("limits", "cpus"), 0.5),
    "memory": (["--memory", "256m"], ("limits", "memory"), 256 * MIB),
    "pids": (["--pids", "99"], ("limits", "pids"), 99),
    "disk": (["--disk", "20m"], ("limits", "disk"), 20 * MIB),
    "inodes": (["--inodes", "999"], ("limits", "inodes"), 999),
    "log_limit": (["--log-limit", "1m"], ("limits", "log_limit"), MIB),
    "idle_timeout": (["--idle-timeout", "8"], ("limits", "idle_timeout"), 8),
    "grace": (["--grace", "1"], ("limits", "grace"), 1),
    "runtime": (["--runtime", "runc"], ("isolation", "runtime"), "runc"),
    "network": (["--network", "open"], ("isolation", "network"), "open"),
    "allow": (["--allow", "10.9.8.7:5"], ("isolation", "allow"), ("10.9.8.7:5",)),
    "read_only": (["--read-only"], ("isolation", "read_only"), True),
    "env": (["--env", "A=1"], ("isolation", "env"), {"A": "1", "B": "2"}),
    "env_file": (["--env-file", "variables"], ("isolation", "env"), {"A": "1", "B": "2"}),
    "secrets": (["--secret", "TOKEN"], ("isolation", "secrets"), ("TOKEN",)),
    "ports": (["--ports", "3000"], ("isolation", "ports"), {"PORT": 3000}),
    "copy": (["--copy", "*.local"], ("isolation", "copied"), ("*.local",)),
    "services": (["--service", "db=pg"], ("project", "services"), {"db": Service(image="pg")}),
    "dotenv": (["--dotenv", ".env"], ("project", "dotenv"), ".env"),
    "caches": (["--cache", "pip"], ("project", "caches"), ("pip",)),
    "setup": (["--setup", "s"], ("project", "setup"), ("s",)),
    "setup_timeout": (["--setup-timeout", "6"], ("project", "setup_timeout"), 6),
    "setup_network": (["--setup-network", "none"], ("isolation", "setup_network"), "none"),
    "teardown": (["--teardown", "t"], ("project", "teardown"), ("t",)),
    "checks": (["--check", "c"], ("project", "checks"), (Check(run="c"),)),
    "check_network": (["--check-network", "open"], ("isolation", "check_network"), "open"),
    "tokens_per_worker": (["--tokens-per-worker", "5"], ("tokens_per_worker",), 5),
    "budget_total": (["--budget-total", "3"], ("budget_total",), 3),
    "tokens_total": (["--tokens-total", "6"], ("tokens_total",), 6),
    "base": (["--base", "HEAD"], ("base",), "HEAD"),
    "worktree_dir": (["--worktree-dir", "../wt/{n}"], ("worktree_dir",), "../wt/{n}"),
    "branch": (["--branch", "solve/{id}"], ("branch",), "solve/{id}"),
    "include_uncommitted": (["--include-uncommitted"], ("include_uncommitted",), True),
    "retries": (["--retries", "1"], ("retries",), 1),
    "retry_delay": (["--retry-delay", "0.5"], ("retry_delay",), 0.5),
    "retry_on": (["--retry-on", "oom"], ("retry_on",), ("oom",)),
    "retry_from": (["--retry-from", "keep"], ("retry_from",), "keep"),
    "rate_limit_wait": (["--rate-limit-wait", "3"], ("rate_limit_wait",), 3),
    "stagger": (["--stagger", "0.1"], ("stagger",), 0.1),
    "fail_fast": (["--fail-fast"], ("fail_fast",), True),
    "silence": (["--alert-silence", "3"], ("triggers", "silence"), 3),
    "repeated_errors": (["--alert-errors", "4"], ("triggers", "repeated_errors"), 4),
    "prompts": (["--alert-prompt", "2"], ("triggers", "prompts"), 2),
    "paths": (["--alert-outside", "src"], ("triggers", "paths"), ("src",)),
    "enforce": (["--alert-outside", "src", "--enforce", "ro"], ("triggers", "enforce"), "ro"),
    "on_trigger": (["--on-alert", "stop"], ("triggers", "on_trigger"), "stop"),
    "notify": (["--notify", "cat"], ("triggers", "notify"), "cat"),
    "fail_on": (["--fail-on", "all"], ("fail_on",), "all"),
}
OTHER_OPTIONS = {
    "positional": "tests/cli/commands/test_parallel.py::test_every_option_reaches_the_runner",
    "tasks": "tests/cli/commands/test_parallel.py::test_every_option_reaches_the_runner",
    "context": "tests/workspace/test_shared_files.py::test_a_context_is_given_to_every_worker",
    "config": "tests/cli/commands/test_parallel.py::test_what_is_not_given_is_not_set",
    "quiet": "tests/cli/commands/test_parallel.py::test_quiet_leaves_stderr_empty",
    "json": "tests/cli/commands/test_parallel.py::test_stdout_is_the_json_and_nothing_else",
    "dry_run": "tests/system/test_workflows.py::test_stages_one_after_the_other",
    "detach": "tests/system/test_resume.py::*",
    "file": "tests/cli/commands/test_spec.py::test_what_a_file_comes_to",
    "at_once": "tests/cli/commands/test_scheduled_runs.py::test_no_parallel_is_one_worker",
    "fetch": "tests/cli/commands/test_scheduled_runs.py::test_a_base_is_fetched_first",
    "summary": "tests/cli/commands/test_scheduled_runs.py::test_a_summary_is_one_line",
    "when_busy": "tests/cli/commands/test_scheduled_runs.py::test_a_second_run_leaves_or_waits",
    "var": "tests/cli/commands/test_spec.py::test_what_a_file_comes_to",
    "only": "tests/cli/commands/test_spec.py::test_some_of_it",
    "from_": "tests/cli/commands/test_spec.py::test_a_run_takes_the_part",
    "after": "tests/system/test_workflows.py::*",
}
COMMANDS = {"parallel": parallel, "spec run": spec_run}


FORMER = {
    "silence": "--silence",
    "repeated_errors": "--repeated-errors",
    "prompts": "--prompts",
    "paths": "--paths",
    "on_trigger": "--on-trigger",
}
"""Settings whose option had another name, which is still accepted."""


def names(command: str) -> set[str]:
    parameters = inspect.signature(COMMANDS[command]).parameters
    return {name for name in parameters if not name.startswith("former_")}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_row(command: str) -> None:
    assert names(command) <= SETTINGS_OF_OPTIONS.keys() | OTHER_OPTIONS.keys()


def test_every_row_is_an_option() -> None:
    known = set.union(*map(names, COMMANDS))
    assert SETTINGS_OF_OPTIONS.keys() | OTHER_OPTIONS.keys() <= known


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_arrives(command: str, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)
    monkeypatch.setenv("TOKEN", "a secret")
    (repo / "variables").write_text("B=2\n")
    (repo / "flow.yaml").write_text(FLOW)
    caught: list[ParallelConfig] = []

    class Runner:
        def __init__(self, config: ParallelConfig, **_: object) -> None:
            caught.append(config)
            raise ConfigError("seen")

    module = "parallel" if command == "parallel" else "spec_run"
    monkeypatch.setattr(f"orchestrator.cli.commands.{module}.ParallelRunner", Runner)
    rows = {name: row for name, row in SETTINGS_OF_OPTIONS.items() if name in names(command)}
    words = [word for given, _, _ in rows.values() for word in given]
    task = "do it" if command == "parallel" else "flow.yaml"
    run([*command.split(), task, *words])
    assert len(caught) == 1
    for name, (_, field, value) in rows.items():
        expected = value
        if name in {"env", "env_file"} and "env_file" not in rows:
            expected = {"A": "1"}
        found: Any = caught[0]
        for part in field:
            found = getattr(found, part)
        assert found == expected, name


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_is_accepted_and_not_shown(
    name: str, repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo)
    current, value = SETTINGS_OF_OPTIONS[name][0]
    command = ["parallel", "true", "--agent-cli", "shell", "--dry-run", "--quiet"]
    others = ["--silence", "9"] if name == "on_trigger" else []
    assert run([*command, *others, FORMER[name], value]) == 0
    assert run([*command, *others, FORMER[name], value, current, value]) == 3
    said = f"error: `{FORMER[name]}` is the former name of `{current}`; both were given"
    assert said in capsys.readouterr().err
    for shown in ("parallel", "run-one", "spec run"):
        assert run([*shown.split(), "--help"]) == 0
        printed = capsys.readouterr().out
        assert current in printed
        assert f" {FORMER[name]} " not in printed


def test_every_former_name_is_tested() -> None:
    assert {key: option.former for key, option in OPTIONS.items() if option.former} == FORMER


# --- Help: in groups, every text fits and is understood without the others.


@pytest.mark.parametrize("command", ["parallel", "spec run", "run-one"])
def test_options_are_listed_in_groups(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    titles = re.findall(r"^(\S.*):$", capsys.readouterr().out, re.MULTILINE)
    assert titles == ["Arguments", *Group]


def test_ten_options_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    run(["parallel", "--help"])
    common = capsys.readouterr().out.partition("Common options:\n")[2].partition("\n\n")[0]
    assert len(re.findall(r"^  -", common, re.MULTILINE)) == 10


RIDDLES = re.compile(r"\b(those|then|somebody|whoever|nobody|anew|the one|ones)\b")


def parameters(command: Any, name: str) -> list[tuple[str, Any]]:
    found = [(name, one) for one in command.params if not getattr(one, "hidden", False)]
    for inner in getattr(command, "commands", {}).values():
        found += parameters(inner, f"{name} {inner.name}")
    return found


@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_each_help_text_is_short_and_understood_alone(command: str) -> None:
    group: Any = typer.main.get_command(app)
    for name, one in parameters(group.get_command(typer.Context(group), command), command):
        text = re.sub(r"\s*\[default: .*\]$", "", one.help or "")
        assert text.endswith("."), f"{name} {one.name}"
        assert len(text) <= 90, f"{name} {one.name}: {text}"
        assert not RIDDLES.search(text), f"{name} {one.name}: {text}"


def test_a_new_setting_is_an_option_by_its_declaration_alone() -> None:
    declared = {key for key, field in FIELDS.items() if option_of(field)}
    assert declared <= names("parallel")
    assert declared - {"tasks", "models"} <= names("spec run")


# --- Options that modify others are refused by themselves.


@pytest.mark.parametrize("name", NEEDS)
def test_an_option_that_changes_nothing_is_refused(
    name: str, repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo)
    words, _, _ = SETTINGS_OF_OPTIONS[name]
    # A rate-limited worker is started again, too, unless nothing may wait for its provider.
    (repo / "no-wait.yaml").write_text("parallel_runs: {rate_limit_wait: 0}")
    shell = ["parallel", "true", "--agent-cli", "shell", "--dry-run", "--config", "no-wait.yaml"]
    assert run([*shell, *words]) == 3
    assert f"option `{words[0]}` has no effect without `--" in capsys.readouterr().err
    (repo / "mine.yaml").write_text("parallel_runs: {retry_delay: 3}\ntriggers: {on_trigger: stop}")
    command = ["parallel", "true", "--agent-cli", "shell", "--dry-run"]
    assert run([*command, "--config", "mine.yaml"]) == 0, "a file may wait for the other option"


# --- What does not go together is refused.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--network", "none", "--allow", "10.9.8.7"], "`--allow` names a host, but no worker has"),
        (["--max-steps", "3"], "`shell` does not support `--max-steps`"),
        (["--detach"], "`--dry-run` and `--detach` cannot be used together"),
    ],
)
def test_parallel_refuses(
    words: list[str],
    said: str,
    repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repo)
    assert run(["parallel", "true", "--agent-cli", "shell", "--dry-run", *words]) == 3
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "flow", "words", "said"),
    [
        ("parallel_runs: {models: [a, b]}", "", [], "`parallel_runs.models` is only for"),
        ("parallel_runs: {tasks: [a]}", "", [], "`parallel_runs.tasks` is only for"),
        ("container: {read_only: true}", ", mode: rw", [], "task `one`: `mode` is `rw`, but the"),
        ("", ", max_steps: 3", [], "`shell` does not support `--max-steps`"),
        ("", "", ["--allow", "10.9.8.7", "--network", "none"], "`--allow` names a host, but no"),
        ("", ", network: none", ["--allow", "10.9.8.7"], "`--allow` names a host, but no worker"),
        ("", "", ["--detach"], "`--dry-run` and `--detach` cannot be used together"),
    ],
)
def test_a_workflow_refuses(
    settings: str,
    flow: str,
    words: list[str],
    said: str,
    repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repo)
    (repo / "mine.yaml").write_text(settings)
    (repo / "flow.yaml").write_text(f"tasks: [{{id: one, task: 'true'{flow}}}]")
    command = ["spec", "run", "flow.yaml", "--agent-cli", "shell", "--dry-run"]
    assert run([*command, "--config", "mine.yaml", *words]) == 3
    assert said in capsys.readouterr().err


def test_one_task_with_a_network_is_enough_for_a_host(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)
    (repo / "flow.yaml").write_text(
        "tasks: [{id: a, task: 'true', network: none}, {id: b, task: 'true', network: open}]"
    )
    (repo / "mine.yaml").write_text("container: {network: none}")
    command = ["spec", "run", "flow.yaml", "--agent-cli", "shell", "--dry-run"]
    assert run([*command, "--config", "mine.yaml", "--allow", "10.9.8.7"]) == 0


# --- Settings: each is seen in one run with all of them, as `parallel` and as a workflow.


class Recording(LocalEngine):
    """Remembers the containers that it was asked for."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch, images=("orchestrator/base:latest", "mine", "pg"))
        self.specs: list[ContainerSpec] = []

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        """Have the runtime that a network may be used with."""
        assert runtime == "runc"
        return super().check(images=images, runtime=None)

    def _make(self, spec: ContainerSpec, scratch: Path) -> LocalContainer:
        self.specs.append(spec)
        return super()._make(spec, scratch)


@dataclass(frozen=True)
class Seen:
    """One run, looked at from outside."""

    result: RunResult
    specs: list[ContainerSpec]
    events: list[Event]

    def role(self, role: str) -> ContainerSpec:
        return next(spec for spec in self.specs if spec.labels[ROLE] == role)

    @property
    def worker(self) -> ContainerSpec:
        return self.role("worker")

    def slots(self) -> int:
        return next(event.slots for event in self.events if isinstance(event, RunStarted))


def all_of_it() -> ParallelConfig:
    return ParallelConfig(
        tasks=("echo x > made; cat mine.local a.txt",),
        model="m",
        workers=1,
        agent="plan",
        agent_cli="shell",
        budget_per_worker=1.5,
        tokens_per_worker=99,
        timeout_per_worker=55,
        image="mine",
        api_base="http://127.0.0.1:9",
        base="HEAD~1",
        worktree_dir=".worktrees/{id}-{n}",
        branch="solve/{id}",
        limits=Limits(cpus=0.5, memory=64 * MIB, pids=77, open_files=99, tmp=2 * MIB, grace=0.2,
                      log_limit=MIB),
        isolation=Isolation(
            network="open", setup_network="none", check_network="open", allow=("10.9.8.7:5",),
            runtime="runc", env={"MINE": "1"}, secrets=("TOKEN",), history="shallow",
            ports={"PORT": 3000}, copied=("*.local",),
        ),
        project=Project(
            setup=("true",), teardown=("true",), checks=(Check(run="true", name="fine"),),
            dotenv=".env",
        ),
    )  # fmt: skip


def has_tmpfs(spec: ContainerSpec, size: int) -> bool:
    return any(isinstance(mount, TmpfsMount) and mount.size == size for mount in spec.mounts)


def has_secret(spec: ContainerSpec) -> bool:
    return any(isinstance(m, BindMount) and m.target == "/run/secrets" for m in spec.mounts)


Look = Callable[[Seen], bool]
ATTEMPTS, TRIGGERS = "tests/worker/test_attempts.py", "tests/execution/test_watchdog.py"
RUNNER, LIMITED = "tests/runs/test_runner.py", "tests/scheduling/test_rate_limited_runs.py"
EACH_ENDS_ONE = (
    "tests/system/test_acceptance.py::test_disk_log_inodes_and_silence_each_end_one_worker"
)
STOPPED_BY_A_TRIGGER = f"{TRIGGERS}::test_the_worker_is_stopped_for_it_and_its_work_is_kept"
CAPACITY, RETENTION = "tests/runs/test_capacity.py", "tests/cleanup/test_retention.py"
CONFINED, STAGES = "tests/workspace/test_confined.py", "tests/worker/test_stages.py"
SCHEDULER = "tests/scheduling/test_scheduler.py"
DEPENDENCIES = "tests/scheduling/test_dependencies.py"
SETTINGS: dict[tuple[str, ...], Look | str] = {
    ("tasks",): lambda seen: "cat mine.local" in seen.worker.command[-1],
    ("model",): lambda seen: seen.worker.env["ORCHESTRATOR_MODEL"] == "m",
    ("models",): f"{SCHEDULER}::test_more_models_than_tasks_repeat_the_first_task",
    ("workers",): lambda seen: seen.slots() == 1,
    ("agent",): lambda seen: seen.worker.env["ORCHESTRATOR_AGENT"] == "plan",
    ("agent_cli",): lambda seen: seen.worker.command[0] == "sh",
    ("max_steps",): f"{RUNNER}::test_a_worker_beyond_its_steps_is_stopped",
    ("budget_per_worker",): lambda seen: seen.worker.env["ORCHESTRATOR_BUDGET"] == "1.5",
    ("tokens_per_worker",): lambda seen: seen.worker.env["ORCHESTRATOR_TOKENS"] == "99",
    ("budget_total",): f"{LIMITED}::test_each_gets_its_share_of_what_is_left",
    ("tokens_total",): f"{LIMITED}::test_tokens_are_stopped_from_outside",
    ("timeout_per_worker",): f"{RUNNER}::test_a_worker_past_its_deadline_keeps_its_work",
    ("image",): lambda seen: seen.worker.image == "mine",
    ("api_base",): lambda seen: "127.0.0.1" in seen.worker.env["ORCHESTRATOR_API_BASE"],
    ("base",): lambda seen: (seen.result.results[0].summary or "").endswith("a"),
    ("worktree_dir",): lambda seen: "/.worktrees/" in seen.result.results[0].worktree_path,
    ("branch",): lambda seen: seen.result.results[0].branch.startswith("solve/"),
    ("include_uncommitted",): f"{RUNNER}::test_uncommitted_work_is_carried_over_when_asked",
    ("context",): "tests/workspace/test_shared_files.py::test_a_context_is_given_to_every_worker",
    ("closed_stages",): (
        "tests/config/test_untrusted_file.py::test_its_commands_are_closed_unless_an_option_has_others"
    ),
    ("auto_workers",): (
        "tests/scheduling/test_admission.py::test_with_auto_all_that_workers_may_use_is_set_aside"
    ),
    ("max_workers",): (
        "tests/config/test_validation.py"
        "::test_a_named_file_and_the_environment_raise_the_number_of_workers"
    ),
    ("max_worktrees",): f"{CAPACITY}::test_one_more_is_refused_with_those_that_could_go",
    ("retention",): f"{RETENTION}::test_a_run_removes_old_workers_that_are_merged",
    ("retries",): f"{ATTEMPTS}::test_a_task_that_fails_twice_and_then_passes_is_a_success",
    ("retry_delay",): f"{ATTEMPTS}::test_a_worker_that_waits_holds_no_slot",
    ("retry_on",): f"{ATTEMPTS}::test_a_timeout_only_where_asked",
    ("retry_from",): f"{ATTEMPTS}::test_goes_on_from_what_the_last_attempt_committed",
    ("rate_limit_wait",): f"{LIMITED}::test_longer_than_anybody_waits_is_a_failure_at_once",
    ("stagger",): "tests/execution/test_start_throttle.py::test_starts_are_so_far_apart",
    ("fail_fast",): f"{ATTEMPTS}::test_the_first_failure_for_good_cancels_all_others",
    ("fail_on",): "tests/cli/commands/test_parallel.py::test_the_exit_code_is_that_of_the_results",
    ("preset",): "tests/config/test_presets.py::*",
    ("providers",): f"{LIMITED}::test_five_starts_with_room_for_two_and_one_a_second",
    ("limits", "cpus"): lambda seen: seen.worker.cpus == 0.5,
    ("limits", "memory"): lambda seen: seen.worker.memory == 64 * MIB,
    ("limits", "pids"): lambda seen: seen.worker.pids == 77,
    ("limits", "open_files"): lambda seen: seen.worker.open_files == 99,
    ("limits", "tmp"): lambda seen: has_tmpfs(seen.worker, 2 * MIB),
    ("limits", "disk"): EACH_ENDS_ONE,
    ("limits", "inodes"): EACH_ENDS_ONE,
    ("limits", "log_limit"): EACH_ENDS_ONE,
    ("limits", "idle_timeout"): EACH_ENDS_ONE,
    ("limits", "grace"): f"{RUNNER}::test_a_worker_past_its_deadline_keeps_its_work",
    ("isolation", "network"): lambda seen: seen.worker.network != "none",
    ("isolation", "setup_network"): lambda seen: seen.role("setup").network == "none",
    ("isolation", "check_network"): lambda seen: any(
        spec.network != "none" for spec in seen.specs if spec.labels[ROLE] == "check"
    ),
    ("isolation", "allow"): lambda seen: any(
        "10.9.8.7" in address and port == 5
        for address, port in (seen.worker.egress.allowed if seen.worker.egress else ())
    ),
    ("isolation", "read_only"): "tests/workspace/test_private_git.py::*",
    ("isolation", "runtime"): lambda seen: seen.worker.runtime == "runc",
    ("isolation", "env"): lambda seen: seen.worker.env["MINE"] == "1",
    ("isolation", "secrets"): lambda seen: has_secret(seen.worker),
    ("isolation", "history"): "tests/runs/test_repositories.py::*",
    ("isolation", "ports"): lambda seen: 3000 in seen.worker.ports,
    ("isolation", "copied"): lambda seen: "copied" in (seen.result.results[0].summary or ""),
    ("triggers", "silence"): f"{TRIGGERS}::test_silence_once_for_each_time",
    ("triggers", "repeated_errors"): f"{TRIGGERS}::test_an_error_that_comes_again_and_again",
    ("triggers", "prompts"): f"{TRIGGERS}::test_a_question_that_nobody_answers",
    ("triggers", "paths"): f"{TRIGGERS}::test_changes_outside_the_scope",
    ("triggers", "enforce"): f"{CONFINED}::test_only_the_directories_are_writable",
    ("triggers", "on_trigger"): STOPPED_BY_A_TRIGGER,
    ("triggers", "notify"): "tests/runs/test_notifications.py::test_a_command_gets_the_event",
    ("project", "setup"): lambda seen: "true" in seen.role("setup").command,
    ("project", "setup_timeout"): f"{STAGES}::test_setup_has_a_deadline_of_its_own",
    ("project", "teardown"): lambda seen: "true" in seen.role("teardown").command,
    ("project", "checks"): lambda seen: [c.name for c in seen.result.results[0].checks] == ["fine"],
    ("project", "caches"): "tests/workspace/test_caches.py::*",
    ("project", "services"): "tests/worker/test_services.py::*",
    ("project", "dotenv"): "tests/worker/test_dotenv.py::*",
}  # fmt: skip
PARTS = {"limits": Limits, "isolation": Isolation, "triggers": Triggers, "project": Project}
WORKFLOW_OF_TESTS = "tests/runs/test_workflows.py::test_each_task_has_its_own_settings"
OF_A_TASK: dict[str, tuple[Any, Look] | str] = {
    "agent": ("review", lambda seen: seen.worker.env["ORCHESTRATOR_AGENT"] == "review"),
    "agent_cli": "tests/runs/test_workflows.py::"
    "test_a_task_with_a_program_of_its_own_has_what_is_configured_for_that",
    "model": ("own", lambda seen: seen.worker.env["ORCHESTRATOR_MODEL"] == "own"),
    "image": ("pg", lambda seen: seen.worker.image == "pg"),
    "max_steps": "tests/cli/test_every_option.py::test_a_workflow_refuses",
    "budget": (0.5, lambda seen: seen.worker.env["ORCHESTRATOR_BUDGET"] == "0.5"),
    "timeout": WORKFLOW_OF_TESTS,
    "retries": f"{DEPENDENCIES}::test_an_attempt_more_starts_where_the_task_does",
    "retry_delay": f"{DEPENDENCIES}::test_an_attempt_more_starts_where_the_task_does",
    "limits": ({"pids": 55}, lambda seen: seen.worker.pids == 55 and seen.worker.cpus == 0.5),
    "network": "tests/cli/test_every_option.py::test_a_workflow_refuses",
    "ports": ([3001], lambda seen: 3001 in seen.worker.ports),
    "services": "tests/worker/test_services.py::*",
    "setup": (["echo own"], lambda seen: "echo own" in seen.role("setup").command),
    "checks": (
        [{"run": "true", "name": "own"}],
        lambda seen: [check.name for check in seen.result.results[0].checks] == ["own"],
    ),
    "paths": "tests/runs/test_workflows.py::test_changes_elsewhere_make_a_task_partial",
    "enforce": "tests/workspace/test_confined.py::test_a_task_of_a_workflow_is_confined",
}


def test_every_setting_has_a_row() -> None:
    fields = {(name,) for name in ParallelConfig.model_fields if name not in PARTS}
    fields |= {(part, name) for part, model in PARTS.items() for name in model.model_fields}
    assert fields == SETTINGS.keys()
    assert set(WorkerSettings.model_fields) == OF_A_TASK.keys()


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_is_there() -> None:
    named = [row for rows in (SETTINGS, OF_A_TASK, OTHER_OPTIONS) for row in rows.values()]
    for place in (row for row in named if isinstance(row, str)):
        file, _, function = place.partition("::")
        assert function == "*" or function in functions_of(file), place


def ready(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a secret of mine")
    (repo / "a.txt").write_text("later\n")
    git(repo, "commit", "-qam", "later")
    (repo / "mine.local").write_text("copied\n")


def look(repo: Path, scratch: Path, workflow: Workflow | None) -> Seen:
    events: list[Event] = []
    engine = Recording(scratch)
    result = ParallelRunner(
        all_of_it(), repo, engine=engine, emit=events.append, workflow=workflow
    ).execute()
    return Seen(result, engine.specs, events)


@pytest.mark.parametrize("kind", ["parallel", "workflow"])
def test_every_setting_is_kept(
    kind: str, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(repo, monkeypatch)
    task = Task(id="one", task=all_of_it().tasks[0])
    flow = Workflow(name="flow", tasks=(task,)) if kind == "workflow" else None
    seen = look(repo, tmp_path / "engine", flow)
    looks = {field: row for field, row in SETTINGS.items() if not isinstance(row, str)}
    assert [field for field, row in looks.items() if not row(seen)] == []


def test_every_setting_of_a_task_is_kept(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(repo, monkeypatch)
    looks = {name: row for name, row in OF_A_TASK.items() if not isinstance(row, str)}
    own = WorkerSettings.model_validate({name: value for name, (value, _) in looks.items()})
    task = Task(id="one", task="echo x > made", settings=own)
    seen = look(repo, tmp_path / "engine", Workflow(name="flow", tasks=(task,)))
    assert [name for name, (_, row) in looks.items() if not row(seen)] == []
