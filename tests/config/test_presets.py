"""Tests that presets set only defaults, as documented."""

from pathlib import Path

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.settings_check import with_needed_broker
from orchestrator.config.fields import FIELDS, is_size
from orchestrator.config.loading.loading import load_config
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.presets import PRESETS
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.output.formats import size
from tests.support.errors import raises

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "presets.md"
ANY = ParallelConfig(tasks=("t",))


def load(options=None, *, environ=None, file=None) -> ParallelConfig:
    options = {"tasks": ("t",), **(options or {})}
    return load_config(options=options, environ=environ or {}, top=None, file=file)


def value_of(config: ParallelConfig, field: tuple[str, ...]) -> object:
    found: object = config
    for name in field:
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_every_value_of_a_preset_is_valid_and_applied(name):
    config = ParallelConfig(tasks=("t",), preset=name)
    for part, values in PRESETS[name].items():
        for key, value in values.items():
            field = FIELDS[key]
            assert len(field) == 1 if part == "run" else field[0] == part
            assert value_of(config, field) == value
    # Validation refuses unknown values, and values of a wrong type or out of range.
    checked = ParallelConfig.model_validate_json(config.model_dump_json())
    assert checked == config


def test_without_preset_the_defaults_apply():
    assert load() == ANY
    assert (ANY.limits, ANY.isolation) == (Limits(), Isolation())


def test_every_option_overrides_the_preset_and_files_can_only_be_stricter(tmp_path):
    file = tmp_path / "orchestrator.yaml"
    file.write_text(
        "parallel_runs: {preset: trusted, timeout_per_worker: 7}\ncontainer: {pids: 99}\n"
    )
    options = {"preset": "untrusted", "cpus": "1.5", "memory": "3g", "network": "open"}
    config = load(options, environ={"ORCHESTRATOR_TMP": "2m"}, file=file)
    assert config.preset == "untrusted"
    assert (config.timeout, config.limits.pids, config.limits.tmp) == (7, 99, 2 * 1024**2)
    assert (config.limits.memory, config.limits.cpus) == (3 * 1024**3, 1.5)
    assert (config.isolation.network, config.isolation.history) == ("open", "shallow")
    assert config.limits.disk == PRESETS["untrusted"]["limits"]["disk"]


def test_explicit_default_value_overrides_the_preset():
    explicit = ParallelConfig(
        tasks=("t",), preset="untrusted", limits=Limits(pids=512), timeout_per_worker=600
    )
    assert (explicit.limits.pids, explicit.timeout) == (512, 600)
    assert explicit.limits.memory == 1024**3


def test_ports_do_not_open_the_network_of_a_preset():
    isolation = load({"preset": "untrusted", "ports": "3000"}).isolation
    assert (isolation.network, isolation.ports) == ("none", {"PORT": 3000})


def test_unknown_preset_is_refused():
    with raises("configuration.invalid", "`--preset` is `paranoid`", "`untrusted`, `ci`"):
        load({"preset": "paranoid"})


def table() -> str:
    """Return the table that the documentation must contain."""
    configs = [ANY, *(ParallelConfig(tasks=("t",), preset=name) for name in PRESETS)]
    keys = dict.fromkeys(key for parts in PRESETS.values() for p in parts.values() for key in p)
    head = ["setting", "none", *(f"`{name}`" for name in PRESETS)]
    rows = [head, ["---"] * len(head)]
    rows += [[f"`{key}`", *(shown(key, value_of(c, FIELDS[key])) for c in configs)] for key in keys]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shown(key: str, value: object) -> str:
    if value is None:
        return "2, or fewer on a smaller machine"
    if key == "idle_timeout" and value == 0:
        return "no limit"
    if is_size(FIELDS[key]):
        return size(int(str(value)))
    return (
        f"{value:g} s"
        if key.endswith(("timeout", "per_worker", "grace", "wait"))
        else str_of(value)
    )


def str_of(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_documentation_contains_the_table():
    assert table() in PAGE.read_text(), f"put this table into {PAGE}:\n{table()}"


@pytest.mark.parametrize(
    ("program", "env", "keys"),
    [
        ("shell", {}, "env"),
        ("shell", {"OPENAI_API_KEY": ""}, "env"),
        ("shell", {"OPENAI_API_KEY": "sk-x"}, "broker"),
        *((name, {}, "broker") for name in (
            "aider", "architect", "claude", "codex", "gemini", "mini", "opencode"
        )),
    ],
)  # fmt: skip
def test_keys_of_untrusted_tasks_are_in_a_broker(program, env, keys):
    agent = load_agent(program)
    untrusted = ParallelConfig(tasks=("t",), preset="untrusted", isolation=Isolation(env=env))
    assert with_needed_broker(untrusted, agent, {}).isolation.keys == keys
    chosen = ParallelConfig(tasks=("t",), isolation=Isolation(keys="broker", env=env))
    assert with_needed_broker(chosen, agent, {}) == chosen
    back = ParallelConfig(tasks=("t",), preset="untrusted", isolation=Isolation(keys="env"))
    assert with_needed_broker(back, agent, {"OPENAI_API_KEY": "sk-x"}).isolation.keys == "env"


def test_untrusted_tasks_reach_listed_hosts_alone():
    assert load({"preset": "untrusted"}).isolation.network == "none"
    listed = {"preset": "untrusted", "allow": ("a.example",)}
    assert load(listed).isolation.network == "allowlist"
    assert load({**listed, "network": "open"}).isolation.network == "open"
    assert load({**listed, "preset": "ci"}).isolation.network == "open"
