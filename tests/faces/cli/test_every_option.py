"""Tests that every option is applied or refused: no option is accepted and ignored.

Each option has a row that says how its effect is observed: in the resulting settings, or by another
test. An option without a row fails. `tests/config/test_every_setting.py` has the settings.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from orchestrator.base.errors import ConfigError
from orchestrator.config.fields import FIELDS, OPTIONS, option_of
from orchestrator.config.loading.ineffective_options import NEEDS
from orchestrator.config.settings.option import Group
from orchestrator.config.settings.project import Check, Service
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.app import COMMANDS as EVERY_COMMAND
from orchestrator.faces.cli.app import app, run
from orchestrator.faces.cli.commands.parallel import parallel
from orchestrator.faces.cli.commands.spec_run import run as spec_run
from tests.support.named_tests import missing_tests

MIB = 1024**2
# --- Options: the resulting settings, or the test that checks the effect.

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
    "keys": (["--keys", "broker"], ("isolation", "keys"), "broker"),
    "git_read": (
        ["--git-read", "https://git.example/a/b=TOKEN"],
        ("isolation", "git_read"),
        ("https://git.example/a/b=TOKEN",),
    ),
    "key_models": (["--key-models", "a*,b"], ("isolation", "key_models"), ("a*", "b")),
    "prices": (["--price", "gpt-x=2.5/10"], ("isolation", "prices"), ("gpt-x=2.5/10",)),
    "calls_per_minute": (["--calls-per-minute", "7"], ("isolation", "calls_per_minute"), 7),
    "allow_unenforced": (
        ["--allow-unenforced", "swap,pids"],
        ("isolation", "allow_unenforced"),
        ("swap", "pids"),
    ),
    "engine": (["--engine", "kubernetes"], ("isolation", "engine"), "kubernetes"),
    "registry": (
        ["--registry", "reg.example/team"],
        ("cluster", "registry"),
        "reg.example/team",
    ),
    "transfer": (["--transfer", "streams"], ("isolation", "transfer"), "streams"),
    "company": (
        ["--company", "pip=https://mirror.example/simple"],
        ("isolation", "company"),
        ("pip=https://mirror.example/simple",),
    ),
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
    "setup_network": (["--setup-network", "open"], ("isolation", "setup_network"), "open"),
    "setup_allow": (["--setup-allow", "10.9.8.6"], ("isolation", "setup_allow"), ("10.9.8.6",)),
    "teardown": (["--teardown", "t"], ("project", "teardown"), ("t",)),
    "checks": (["--check", "c"], ("project", "checks"), (Check(run="c"),)),
    "check_network": (["--check-network", "open"], ("isolation", "check_network"), "open"),
    "check_allow": (["--check-allow", "10.9.8.5"], ("isolation", "check_allow"), ("10.9.8.5",)),
    "tokens_per_worker": (["--tokens-per-worker", "5"], ("tokens_per_worker",), 5),
    "budget_total": (["--budget-total", "3"], ("budget_total",), 3),
    "tokens_total": (["--tokens-total", "6"], ("tokens_total",), 6),
    "base": (["--base", "HEAD"], ("base",), "HEAD"),
    "worktree_dir": (["--worktree-dir", "../wt/{n}"], ("worktree_dir",), "../wt/{n}"),
    "worktrees": (["--worktrees", "end"], ("worktrees",), "end"),
    "branch": (["--branch", "solve/{id}"], ("branch",), "solve/{id}"),
    "include_uncommitted": (["--include-uncommitted"], ("include_uncommitted",), True),
    "retries": (["--retries", "1"], ("retries",), 1),
    "fix_checks": (["--fix-checks", "2"], ("fix_checks",), 2),
    "sessions": (["--no-sessions"], ("sessions",), False),
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
    "agent_config": "tests/runs/test_secrets.py::test_file_is_given_to_the_program",
    "positional": "tests/faces/cli/commands/test_parallel.py::test_every_option_reaches_the_runner",
    "tasks": "tests/faces/cli/commands/test_parallel.py::test_every_option_reaches_the_runner",
    "context": (
        "tests/worker/workspace/test_shared_files.py::test_context_is_provided_to_every_worker"
    ),
    "config": (
        "tests/faces/cli/commands/test_parallel.py::test_settings_without_options_are_not_set"
    ),
    "quiet": "tests/faces/cli/commands/test_parallel.py::test_quiet_leaves_stderr_empty",
    "json": "tests/faces/cli/commands/test_parallel.py::test_stdout_contains_only_the_json",
    "dry_run": "tests/system/test_workflows.py::test_stages_run_one_after_another",
    "detach": "tests/system/test_resume.py::*",
    "file": "tests/faces/cli/commands/test_spec.py::test_validate_prints_a_summary_and_warnings",
    "at_once": "tests/faces/cli/commands/test_scheduled_runs.py::test_no_parallel_means_one_worker",
    "fetch": "tests/faces/cli/commands/test_scheduled_runs.py::test_fetch_updates_the_base_first",
    "events": "tests/faces/cli/test_reporting.py::test_events_are_the_only_output",
    "report": "tests/faces/cli/test_reporting.py::test_reports_are_written_at_the_end_of_a_run",
    "artifacts": "tests/system/test_examples.py::test_sharded_tests_example_runs",
    "junit": "tests/system/test_examples.py::test_sharded_tests_example_runs",
    "timings": "tests/faces/cli/commands/test_scheduled_runs.py::test_timings_are_a_table",
    "summary": "tests/faces/cli/commands/test_scheduled_runs.py::test_summary_is_one_line",
    "pick": "tests/faces/cli/commands/test_parallel_pick.py::*",
    "land": "tests/faces/cli/commands/test_land.py::*",
    "when_busy": "tests/faces/cli/commands/test_scheduled_runs.py::test_when_busy_waits_or_exits",
    "var": "tests/faces/cli/commands/test_spec.py::test_validate_prints_a_summary_and_warnings",
    "only": "tests/faces/cli/commands/test_spec.py::test_only_and_from_select_tasks",
    "from_": "tests/faces/cli/commands/test_spec.py::test_run_executes_the_selected_part",
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
"""Former names of options, which are still accepted."""


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
def test_every_option_reaches_the_settings(
    command: str, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)
    monkeypatch.setenv("TOKEN", "a secret")
    (repo / "variables").write_text("B=2\n")
    (repo / "flow.yaml").write_text(FLOW)
    caught: list[ParallelConfig] = []

    class Runner:
        def __init__(self, config: ParallelConfig, **_: object) -> None:
            caught.append(config)
            raise ConfigError("seen", key="option.invalid")

    module = "task_run" if command == "parallel" else "workflow_run"
    monkeypatch.setattr(f"orchestrator.faces.cli.{module}.ParallelRunner", Runner)
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
def test_former_name_is_accepted_but_not_shown(
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


# --- Help: options are in groups, and every text fits.


@pytest.mark.parametrize("command", ["parallel", "spec run", "run-one"])
def test_options_are_listed_in_groups(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    titles = re.findall(r"^(\S.*):$", capsys.readouterr().out, re.MULTILINE)
    none: tuple[Group, ...] = ()
    of_others = {"parallel": none, "spec run": (Group.JUDGING,)}.get(
        command, (Group.MERGING, Group.JUDGING)
    )
    assert titles == ["Arguments", *(group for group in Group if group not in of_others)]


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


def test_declared_options_exist_in_both_commands() -> None:
    declared = {key for key, field in FIELDS.items() if option_of(field)}
    assert declared <= names("parallel")
    assert declared - {"tasks", "models"} <= names("spec run")


# --- Options that have no effect without another option are refused.


@pytest.mark.parametrize("name", NEEDS)
def test_option_without_effect_is_refused(
    name: str, repo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repo)
    words, _, _ = SETTINGS_OF_OPTIONS[name]
    # Without `rate_limit_wait: 0`, retry options also apply to rate-limited workers, and without
    # `prompts: 0` there is an alert for questions.
    quiet = "parallel_runs: {rate_limit_wait: 0}\ntriggers: {prompts: 0}"
    (repo / "no-wait.yaml").write_text(quiet)
    shell = ["parallel", "true", "--agent-cli", "shell", "--dry-run", "--config", "no-wait.yaml"]
    assert run([*shell, *words]) == 3
    assert f"option `{words[0]}` has no effect without `--" in capsys.readouterr().err
    (repo / "mine.yaml").write_text("parallel_runs: {retry_delay: 3}\ntriggers: {on_trigger: stop}")
    command = ["parallel", "true", "--agent-cli", "shell", "--dry-run"]
    assert run([*command, "--config", "mine.yaml"]) == 0, "settings in a file may be unused"


# --- Contradictory options are refused.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--network", "none", "--allow", "10.9.8.7"], "`--allow` names a host, but no worker has"),
        (
            ["--network", "allowlist"],
            "the network is `allowlist`, but the list of allowed hosts is empty",
        ),
        (
            ["--network", "allowlist", "--allow", "10.9.8.7"],
            "`10.9.8.7`: the name is not the full name of",
        ),
        (
            ["--network", "allowlist", "--allow", "*.com"],
            "`*.com`: the name is not the full name of a host",
        ),
        (
            ["--setup", "s", "--setup-network", "none", "--setup-allow", "a.example"],
            "`--setup-allow` names a host, but `setup_network` is `none`",
        ),
        (
            ["--check", "c", "--check-allow", "a.example"],
            "`--check-allow` names a host, but `check_network` is `none`",
        ),
        (["--max-steps", "3"], "`shell` does not support `--max-steps`"),
        (["--detach"], "`--dry-run` and `--detach` cannot be used together"),
    ],
)
def test_contradicting_options_of_parallel_are_refused(
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
        (
            "",
            ", network: allowlist, allow: ['*']",
            [],
            "`*`: the name is not the full name of a host",
        ),
        (
            "",
            ", network: open",
            ["--network", "allowlist", "--allow", "a.example"],
            "`network` of task `one` is `open`, but option `--network` is `allowlist`",
        ),
        ("", "", ["--detach"], "`--dry-run` and `--detach` cannot be used together"),
    ],
)
def test_options_against_a_workflow_are_refused(
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


def test_allow_is_accepted_if_one_task_has_a_network(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo)
    (repo / "flow.yaml").write_text(
        "tasks: [{id: a, task: 'true', network: none}, {id: b, task: 'true', network: open}]"
    )
    (repo / "mine.yaml").write_text("container: {network: none}")
    command = ["spec", "run", "flow.yaml", "--agent-cli", "shell", "--dry-run"]
    assert run([*command, "--config", "mine.yaml", "--allow", "10.9.8.7"]) == 0


def test_every_referenced_test_exists() -> None:
    assert missing_tests(OTHER_OPTIONS.values()) == []
