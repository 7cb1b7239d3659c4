"""Tests that what the user typed bounds files, variables and tasks, for every setting."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config import fields
from orchestrator.config.loading import bounds
from orchestrator.config.settings.presets import PRESETS
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Limits, WorkerSettings
from orchestrator.config.workflow.planning import TASK_KEYS
from orchestrator.faces.cli.app import run
from orchestrator.network.gateway.host_sets import GIT
from orchestrator.network.gateway.package_managers import TOOLS
from tests.support.settings import load, write

HOSTS = "[evil.example]"
WIDE: dict[str, tuple[str, str]] = {
    # In a file, in a variable; settings that a preset bounds.
    "timeout_per_worker": ("0", "0"),
    "rate_limit_wait": ("60", "60"),
    "cpus": ("3", "3"),
    "memory": ("2g", "2g"),
    "pids": ("129", "129"),
    "open_files": ("4096", "4096"),
    "tmp": ("1g", "1g"),
    "disk": ("2g", "2g"),
    "inodes": ("100001", "100001"),
    "log_limit": ("101m", "101m"),
    "grace": ("60", "60"),
    "network": ("learn", "learn"),
    "history": ("full", "full"),
    "keys": ("env", "env"),
    "setup_network": ("allowlist", "allowlist"),
    "check_network": ("open", "open"),
    "include_uncommitted": ("true", "true"),
    "context": ("notes.md", ""),
    "agent_config": ("hooks.yaml", ""),
    "allow": (HOSTS, "evil.example"),
    "setup_allow": (HOSTS, "evil.example"),
    "check_allow": (HOSTS, "evil.example"),
    "secrets": ("[TOKEN]", ""),
    "copy": ("[.env]", ""),
    "git_read": ("['https://git.example/a=TOKEN']", "https://git.example/a=TOKEN"),
    "prices": ("['gpt-4o=0/0']", "gpt-4o=0/0"),
    "notify": ("touch ran", ""),
    "allow_unenforced": ("[swap]", "swap"),
    "company": ("['pip=http://evil.example/']", "pip=http://evil.example/"),
}
UNTRUSTED = {"preset": "untrusted"}


def block_of(key: str) -> str:
    return next(block for block, keys in fields.BLOCKS.items() if key in keys)


def test_every_setting_has_a_direction():
    """A new setting must be decided: which of two values grants more, or that it grants nothing."""
    every = {*fields.FIELDS.values(), fields.PROVIDERS}
    assert {*bounds.WIDER} == every
    every_task_key = {name for name in WorkerSettings.model_fields if name != "limits"}
    every_task_key |= {f"limits.{name}" for name in Limits.model_fields} | {"mode"}
    assert {*TASK_KEYS.values()} == every_task_key


def test_the_table_has_every_setting_that_the_preset_bounds():
    assert {key(field) for field in bounds.bound_of([preset()]).of_preset} == {*WIDE}


def preset() -> fields.Setting:
    return fields.Setting(field=("preset",), value="untrusted", kind="option", name="--preset")


def key(field: fields.FieldPath) -> str:
    return bounds.key_of(field)


@pytest.mark.parametrize("name", WIDE)
class TestPreset:
    """A preset as an option bounds every weaker source."""

    def test_named_file(self, name, tmp_path):
        file = write(tmp_path, f"{block_of(name)}:\n  {name}: {WIDE[name][0]}\n", "mine.yaml")
        assert load(file=file)
        with pytest.raises(ConfigError) as caught:
            load(UNTRUSTED, file=file)
        text = caught.value.message
        assert text.startswith(f"{file}:2: `{block_of(name)}.{name}`")
        assert f"option `--preset` is `untrusted` (`{name}`: " in text

    def test_named_file_is_bounded_by_a_preset_of_the_environment(self, name, tmp_path):
        file = write(tmp_path, f"{block_of(name)}:\n  {name}: {WIDE[name][0]}\n", "mine.yaml")
        with pytest.raises(ConfigError, match="variable `ORCHESTRATOR_PRESET` is `untrusted`"):
            load(environ={"ORCHESTRATOR_PRESET": "untrusted"}, file=file)


@pytest.mark.parametrize("name", [name for name, (_, value) in WIDE.items() if value])
def test_variable_is_bounded_by_a_preset_that_is_an_option(name):
    environ = {f"ORCHESTRATOR_{name.upper()}": WIDE[name][1]}
    assert load(environ={"ORCHESTRATOR_PRESET": "untrusted", **environ})
    with pytest.raises(ConfigError, match=f"variable `ORCHESTRATOR_{name.upper()}`"):
        load(UNTRUSTED, environ=environ)


def test_option_allows_what_a_preset_bounds(tmp_path):
    file = write(tmp_path, "container: {memory: 2g, network: open}\n", "mine.yaml")
    config = load({**UNTRUSTED, "memory": "3g", "network": "open"}, file=file)
    assert (config.limits.memory, config.isolation.network) == (3 * 1024**3, "open")


def test_program_of_a_variable_is_the_users():
    config = load(UNTRUSTED, environ={"ORCHESTRATOR_NOTIFY": "desktop"})
    assert config.triggers.notify == "desktop"


def test_sets_of_hosts_that_were_typed_are_those_of_the_machine(tmp_path):
    assert {*TOOLS, GIT} == bounds.MACHINE_SETS
    text = "container: {allow_sets: {pip: [evil.example], corp: [corp.example]}}\n"
    file = write(tmp_path, text, "mine.yaml")
    typed = {**UNTRUSTED, "network": "allowlist"}
    with pytest.raises(ConfigError, match=r"`container\.allow_sets`"):
        load({**typed, "allow": ("@pip",)}, file=file)
    assert load({**typed, "allow": ("@corp",)}, file=file).isolation.allow == ("@corp",)


def test_stricter_file_is_accepted(tmp_path):
    file = write(tmp_path, "container: {memory: 64m, network: none}\n", "mine.yaml")
    assert load(UNTRUSTED, file=file).limits.memory == 64 * 1024**2


def test_hosts_of_a_file_are_refused_with_a_network_that_was_typed(tmp_path):
    file = write(tmp_path, "container: {allow: [evil.example]}\n", "mine.yaml")
    typed = {**UNTRUSTED, "network": "open", "allow": ("files.example",)}
    assert load(typed, file=file).isolation.allow == ("files.example",)
    with pytest.raises(ConfigError, match=r"`container\.allow` is `evil\.example`"):
        load({**UNTRUSTED, "network": "open"}, file=file)


def test_profile_of_a_program_is_bounded(tmp_path):
    text = "agents: {architect: {timeout_per_worker: 3000}}\n"
    file = write(tmp_path, text, "mine.yaml")
    assert load(file=file).timeout == 3000
    with pytest.raises(ConfigError, match=r"`agents\.architect\.timeout_per_worker` is `3000`"):
        load(UNTRUSTED, file=file)


@pytest.mark.parametrize("limit", ["memory: 64g", "cpus: 64", "pids: 9999"])
def test_service_has_no_larger_limits_than_the_preset(limit, tmp_path):
    file = write(tmp_path, f"services:\n  db: {{image: i, {limit}}}\n", "mine.yaml")
    with pytest.raises(ConfigError, match=":1: `services`"):
        load(UNTRUSTED, file=file)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("checks: [{run: make, timeout: 0}]", "checks"),
        ("checks: [{run: make, timeout: 601}]", "checks"),
        ("services: {db: {image: i, health_timeout: 99999}}", "services"),
    ],
)
def test_command_of_a_file_cannot_run_longer_than_the_preset_allows(text, named, tmp_path):
    file = write(tmp_path, text + "\n", "mine.yaml")
    assert load(file=file)
    with pytest.raises(ConfigError, match=rf":1: `{named}`.*`timeout_per_worker`: 300"):
        load(UNTRUSTED, file=file)
    stricter = write(tmp_path, "checks: [{run: make, timeout: 60}]\n", "strict.yaml")
    assert load(UNTRUSTED, file=stricter)


TASK = {
    # The option that the user typed, and a task's key that asks for more.
    "max_steps": (["--max-steps", "5"], "max_steps: 6"),
    "budget": (["--budget-per-worker", "1"], "budget: 2"),
    "timeout": (["--timeout-per-worker", "60"], "timeout: 0"),
    "retries": (["--retries", "1"], "retries: 2"),
    "network": (["--network", "none"], "network: allowlist"),
    "allow": (["--network", "allowlist", "--allow", "a.example"], "allow: [b.example]"),
    "keys": (["--keys", "broker"], "keys: env"),
    "paths": (["--alert-outside", "src"], "paths: [srcs]"),
    "checks": (["--check", "make"], "checks: ['true']"),
    "limits.cpus": (["--cpus", "1"], "limits: {cpus: 2}"),
    "limits.memory": (["--memory", "64m"], "limits: {memory: 65m}"),
    "limits.pids": (["--pids", "64"], "limits: {pids: 65}"),
    "limits.disk": (["--disk", "64m"], "limits: {disk: 65m}"),
    "limits.inodes": (["--inodes", "1000"], "limits: {inodes: 1001}"),
    "limits.log_limit": (["--log-limit", "1m"], "limits: {log_limit: 2m}"),
    "limits.idle_timeout": (["--idle-timeout", "9"], "limits: {idle_timeout: 0}"),
    "limits.grace": (["--grace", "1"], "limits: {grace: 2}"),
    "limits.open_files": (["--preset", "untrusted"], "limits: {open_files: 2000}"),
    "limits.tmp": (["--preset", "untrusted"], "limits: {tmp: 1g}"),
    "services": (["--preset", "untrusted"], "services: {db: {image: i, memory: 64g}}"),
}
UNBOUNDED = {"agent", "agent_cli", "model", "image", "retry_delay", "ports", "setup"}
"""Keys of tasks that grant nothing."""
OTHERWISE = {"mode", "enforce"}
"""Keys of tasks that can only restrict."""


def test_every_key_of_a_task_is_in_the_table():
    assert {*TASK} | UNBOUNDED | OTHERWISE == {*TASK_KEYS.values()}
    assert not {*TASK} & UNBOUNDED


@pytest.mark.parametrize("name", TASK)
def test_task_cannot_have_more_than_was_typed(name, repo: Path, monkeypatch, capsys):
    monkeypatch.chdir(repo)
    words, text = TASK[name]
    (repo / "w.yaml").write_text(f"tasks:\n- id: one\n  task: 'true'\n  {text}\n")
    program = "shell" if name not in ("max_steps", "budget", "keys") else "claude"
    plan = ("spec", "run", "w.yaml", "--agent-cli", program, "--dry-run")
    assert run([*plan, *words]) == 3
    said = capsys.readouterr().err
    assert f"w.yaml:4: `{name}` of task `one`" in said
    assert f"but option `{words[-2]}` is `{words[-1]}`" in said


def test_defaults_of_a_workflow_are_bounded_with_their_line(repo: Path, monkeypatch, capsys):
    monkeypatch.chdir(repo)
    (repo / "w.yaml").write_text("defaults:\n  network: open\ntasks: [a]\n")
    plan = ("spec", "run", "w.yaml", "--agent-cli", "shell", "--dry-run")
    assert run([*plan, "--preset", "untrusted"]) == 3
    assert "w.yaml:2: `network` of task `task` is `open`" in capsys.readouterr().err
    assert run([*plan, "--preset", "ci"]) == 0


def test_later_values_of_a_preset_cannot_be_forgotten():
    """Each value of a preset that is typed is a bound of the same value."""
    for name in PRESETS:
        typed = bounds.bound_of([replace(preset(), value=name)])
        assert not [*typed.excesses(typed.config)]
        assert typed.of_preset <= {*bounds.WIDER}
        assert ParallelConfig.model_validate(dict(typed.config))
