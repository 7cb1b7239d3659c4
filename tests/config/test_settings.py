"""Settings: every mistake at once, with its place; the stronger source wins."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.cli.app import run
from orchestrator.config.fields import FIELDS
from orchestrator.config.loading import FileCheck, check_file, json_schema, load_config
from orchestrator.config.run import ParallelConfig, Provider, RateLimit
from orchestrator.config.untrusted_file import BOUNDED, NAMED_ONLY
from orchestrator.errors import ConfigError
from tests.support.ci_parsers import commands_in

DOCUMENTED = """\
parallel_runs:
  workers: 3               # 1-10
  agent: build              # Default agent
  max_steps: 50             # Steps per worker
  budget_per_worker: null    # USD per worker
  timeout_per_worker: null   # Seconds per worker
"""
OF_MAX_WORKERS = "must be a whole number from 1 to 10 (`max_workers`) or `auto`"
SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "config.schema.json"


def load(options=None, *, environ=None, file=None, top=None) -> ParallelConfig:
    options = {"tasks": ("t",), **(options or {})}
    return load_config(options=options, environ=environ or {}, top=top, file=file)


def mistakes(options=None, *, environ=None, file=None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(options, environ=environ, file=file)
    assert caught.value.exit_code == 3
    lines = caught.value.message.splitlines()
    if len(lines) == 1:
        return lines
    assert lines[0] == f"{len(lines) - 1} mistakes in the configuration:"
    return [line.removeprefix("  ") for line in lines[1:]]


def write(directory: Path, text: str, name: str = "orchestrator.yaml") -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_the_documented_block_means_the_defaults(tmp_path):
    config = load(file=write(tmp_path, DOCUMENTED))
    assert config == ParallelConfig(
        tasks=("t",), workers=3, agent="build", max_steps=50, budget_per_worker=None
    )
    assert config.timeout == 600


def test_null_counts_as_not_given(tmp_path):
    config = load(file=write(tmp_path, "parallel_runs: {workers: null, timeout_per_worker: ~}"))
    assert "workers" not in config.model_fields_set
    assert config.timeout_per_worker == 600


def test_option_over_environment_over_file_over_default(tmp_path):
    file = write(tmp_path, "parallel_runs: {workers: 4, agent: a, max_steps: 7}")
    environ = {"ORCHESTRATOR_WORKERS": "5", "ORCHESTRATOR_AGENT": "b"}
    config = load({"workers": "6"}, environ=environ, file=file)
    assert (config.workers, config.agent, config.max_steps) == (6, "b", 7)
    assert config.fail_on == "any"


def test_an_empty_variable_is_not_set():
    assert load(environ={"ORCHESTRATOR_WORKERS": ""}).workers == 3


def test_every_setting_reaches_the_configuration(tmp_path):
    text = """\
parallel_runs:
  tasks: [one, two]
  models: [a, b]
  agent_cli: shell
  image: img
  api_base: http://localhost:1
  base: main
  include_uncommitted: true
  fail_on: all
  timeout_per_worker: 1.5
setup: [npm ci]
setup_timeout: 30
teardown: [make clean]
checks: [npm test, {run: tox, name: tests, timeout: 9}]
container:
  setup_network: open
  cpus: 1.5
  memory: 512m
  pids: 64
  open_files: 128
  tmp: 1048576
  grace: 2
  network: open
  runtime: runsc
  env: {A: "1"}
  ports: [3000, 3010]
"""
    config = load({"tasks": None}, file=write(tmp_path, text))
    assert config.model_dump(exclude_unset=True) == {
        "tasks": ("one", "two"), "models": ("a", "b"), "agent_cli": "shell", "image": "img",
        "api_base": "http://localhost:1", "base": "main", "include_uncommitted": True,
        "fail_on": "all", "timeout_per_worker": 1.5,
        "project": {
            "setup": ("npm ci",), "setup_timeout": 30.0, "teardown": ("make clean",),
            "checks": ({"run": "npm test"}, {"run": "tox", "name": "tests", "timeout": 9.0}),
        },
        "limits": {"cpus": 1.5, "memory": 512 * 1024**2, "pids": 64, "open_files": 128,
                   "tmp": 1024**2, "grace": 2.0},
        "isolation": {"network": "open", "setup_network": "open", "runtime": "runsc",
                      "env": {"A": "1"}, "ports": {"PORT": 3000, "API_PORT": 3010}},
    }  # fmt: skip


def test_lists_of_options_and_variables_are_trimmed():
    config = load({"models": "a, b ,c"}, environ={"ORCHESTRATOR_PORTS": "3000, 3010"})
    assert config.models == ("a", "b", "c")
    assert config.isolation.ports == {"PORT": 3000, "API_PORT": 3010}


@pytest.mark.parametrize(
    "text",
    ["ports: [3000, 3010]", "container: {ports: [3000, 3010]}\nports: null",
     "ports: {PORT: 3000, API_PORT: 3010}"],
)  # fmt: skip
def test_ports_have_a_block_of_their_own(tmp_path, text):
    config = load(file=write(tmp_path, text))
    assert config.isolation.ports == {"PORT": 3000, "API_PORT": 3010}


def test_all_mistakes_of_all_sources_are_listed_with_their_places(tmp_path):
    text = """\
parallel_runs:
  worker: 3
  workers: 11
  agent: ""
  max_steps: "50"
  image: true
  cpus: 2
  budget_per_worker: -1
container:
  memory: 3x
  pids: 1.5
  env: {A: 3}
  network: yes
  ports: [80, 99999]
foo: 1
"""
    file = write(tmp_path, text)
    found = mistakes(
        {"tasks": None, "workers": "x", "models": "a,,b", "memory": "8m", "env": ("NOPE", "=3")},
        environ={"ORCHESTRATOR_WORKER": "3", "ORCHESTRATOR_GRACE": "-1"},
        file=file,
    )
    assert sorted(found) == sorted([
        f"{file}:2: `parallel_runs.worker` is unknown, did you mean `parallel_runs.workers`?",
        f"{file}:3: `parallel_runs.workers` is `11`: {OF_MAX_WORKERS}",
        f"{file}:4: `parallel_runs.agent` is ``: must be text that is not empty",
        f'{file}:5: `parallel_runs.max_steps` is `"50"`: must be a whole number, at least 1',
        f"{file}:6: `parallel_runs.image` is `true`: must be text",
        f"{file}:7: `parallel_runs.cpus` is unknown, `cpus` belongs under `container`",
        f"{file}:8: `parallel_runs.budget_per_worker` is `-1`: must be a number above 0",
        f"{file}:10: `container.memory` is `3x`: a size must be a number with a unit, such as "
        f"512m or 4g",
        f"{file}:11: `container.pids` is `1.5`: must be a whole number, at least 8",
        f"{file}:12: `container.env`, variable `A`: must be text; quote values that look like "
        f"numbers",
        f'{file}:13: `container.network` is `yes`: must be one of `none`, `open`',
        f"{file}:14: `container.ports` contains `99999`: must be a list, each item a whole number "
        "from 1 to 65535 or a mapping of names, each with whole number from 1 to 65535",
        f"{file}:15: `foo` is unknown",
        "environment variable `ORCHESTRATOR_WORKER` is unknown, did you mean "
        "`ORCHESTRATOR_WORKERS`?",
        "environment variable `ORCHESTRATOR_GRACE` is `-1`: must be a number, at least 0",
        "option `--workers` is `x`: must be a whole number from 1 to 10 or `auto`",
        "option `--models`: a model name must not be empty",
        "option `--memory` is `8m`: must be a size of at least 16m, such as 512m or 4g",
        "option `--env`: `NOPE` is not set in the environment",
        "option `--env`: a variable must be `NAME=value` or `NAME`",
        "no task was given",
    ])  # fmt: skip


@pytest.mark.parametrize("value", ["0", "11", "-1", "x", "2.5", "nan"])
def test_workers_are_from_one_to_ten(value):
    bound = OF_MAX_WORKERS if value == "11" else OF_MAX_WORKERS.replace(" (`max_workers`)", "")
    assert mistakes({"workers": value}) == [f"option `--workers` is `{value}`: {bound}"]


def test_a_named_file_and_the_environment_raise_the_number_of_workers(tmp_path):
    named = write(tmp_path, "parallel_runs: {max_workers: 64, workers: 20}")
    assert load(file=named).workers == 20
    assert load({"workers": "64"}, file=named).workers == 64
    assert mistakes({"workers": "65"}, file=named) == [
        "option `--workers` is `65`: must be a whole number from 1 to 64 (`max_workers`) or `auto`"
    ]
    raised = {"ORCHESTRATOR_MAX_WORKERS": "12"}
    assert load({"workers": "12"}, environ=raised).workers == 12
    assert mistakes({"workers": "13"}, environ=raised) == [
        "option `--workers` is `13`: must be a whole number from 1 to 12 (`max_workers`) or `auto`"
    ]
    assert mistakes({"workers": "13"}, environ={"ORCHESTRATOR_MAX_WORKERS": "many"}) == [
        "environment variable `ORCHESTRATOR_MAX_WORKERS` is `many`: must be a whole number from 1 "
        "to 1000",
        "option `--workers` is `13`: must be a whole number from 1 to 10 (`max_workers`) or `auto`",
    ]


def test_a_wrong_value_is_reported_even_where_a_stronger_source_wins(tmp_path):
    file = write(tmp_path, "parallel_runs: {workers: 99}")
    assert mistakes({"workers": "2"}, file=file) == [
        f"{file}:1: `parallel_runs.workers` is `99`: {OF_MAX_WORKERS}"
    ]


def test_what_does_not_go_together_is_found_across_sources():
    found = mistakes({"ports": "3000"}, environ={"ORCHESTRATOR_NETWORK": "none"})
    assert found == ["ports cannot be published with network none"]


def test_a_missing_task_has_a_hint():
    with pytest.raises(ConfigError) as caught:
        load({"tasks": ()})
    assert caught.value.message == "no task was given"
    assert caught.value.hint == (
        'pass one as `orchestrator parallel "TASK"`, or several with `--task`'
    )


def test_values_that_may_be_secret_are_not_shown(tmp_path):
    file = write(tmp_path, "parallel_runs: {api_base: [s3cret]}\ncontainer: {env: {A: [s3cret]}}")
    found = mistakes({"env": ("A\0=s3cret",)}, file=file)
    assert len(found) == 3
    assert "s3cret" not in "".join(found)


def test_a_value_cannot_steer_the_terminal():
    (found,) = mistakes({"workers": "\x1b[2J\nx"})
    assert found.startswith("option `--workers` is `\ufffd[2J x`")


class TestVariables:
    def test_they_are_merged_one_by_one(self, tmp_path):
        file = write(tmp_path, "container: {env: {A: file, B: file, C: file}}")
        env_file = write(tmp_path, "# mine\n\nB=env file\nC=x=y\n", "vars.env")
        config = load({"env": ("C=option", "D"), "env_file": (str(env_file),)},
                      environ={"D": "caller"}, file=file)  # fmt: skip
        assert config.isolation.env == {
            "A": "file", "B": "env file", "C": "option", "D": "caller"
        }  # fmt: skip

    def test_mistakes_of_an_env_file_have_lines(self, tmp_path):
        env_file = write(tmp_path, "A=1\nMISSING\n=x\n", "vars.env")
        assert mistakes({"env_file": (str(env_file), "/nowhere")}) == [
            f"{env_file}:2: `MISSING` is not set in the environment",
            f"{env_file}:3: a variable must be `NAME=value` or `NAME`",
            "/nowhere: cannot be read: No such file or directory",
        ]


class TestFileChoice:
    def test_the_first_of_the_repository_that_exists(self, tmp_path):
        write(tmp_path, "parallel_runs: {workers: 5}", ".orchestrator/config.yaml")
        assert load(top=tmp_path).workers == 5
        write(tmp_path, "parallel_runs: {workers: 4}")
        assert load(top=tmp_path).workers == 4

    def test_the_one_asked_for_instead(self, tmp_path):
        write(tmp_path, "parallel_runs: {workers: 4}")
        named = write(tmp_path, "parallel_runs: {workers: 6}", "named.yaml")
        by_variable = write(tmp_path, "parallel_runs: {workers: 7}", "by-variable.yaml")
        environ = {"ORCHESTRATOR_CONFIG": str(by_variable)}
        assert load(top=tmp_path, environ=environ).workers == 7
        assert load(top=tmp_path, environ=environ, file=named).workers == 6

    def test_none_at_all(self, tmp_path):
        assert load(top=tmp_path).workers == 3

    def test_one_that_is_missing(self, tmp_path):
        file = tmp_path / "no.yaml"
        assert mistakes(file=file) == [f"{file}: cannot be read: No such file or directory"]


class TestGuest:
    """A file that nobody named: whoever wrote the repository wrote it."""

    SEEN = "is not accepted from a file that was found in the repository"
    WIDER = "gives workers more permissions or larger limits than without the file"

    def refused(self, tmp_path, text, **rest) -> list[str]:
        file = write(tmp_path, text)
        with pytest.raises(ConfigError) as caught:
            load(top=tmp_path, **rest)
        assert caught.value.hint == f"pass `--config {file}` if you trust the author of that file"
        assert load(file=file, top=tmp_path, **rest)
        assert load(environ={"ORCHESTRATOR_CONFIG": str(file)}, top=tmp_path)
        lines = [line.strip() for line in caught.value.message.splitlines()]
        return [line.removeprefix(f"{file}:") for line in lines if str(file) in line]

    @pytest.mark.parametrize(
        ("block", "key", "value"),
        [
            ("parallel_runs", "agent_cli", "shell"),
            ("parallel_runs", "api_base", "http://evil.invalid"),
            ("parallel_runs", "base", "'stash@{0}'"),
            ("parallel_runs", "image", "evil"),
            ("parallel_runs", "include_uncommitted", "true"),
            ("parallel_runs", "tasks", "[env]"),
            ("container", "allow", "[db]"),
            ("container", "copy", "[.env]"),
            ("container", "env", "{OPENAI_API_BASE: 'http://evil.invalid'}"),
            ("container", "runtime", "evil"),
            ("container", "secrets", "[NPM_TOKEN]"),
        ],
    )
    def test_what_hands_out_what_is_the_user_s(self, tmp_path, block, key, value):
        text = f"{block}: {{{key}: {value}}}"
        assert self.refused(tmp_path, text) == [f"1: `{block}.{key}` {self.SEEN}"]

    @pytest.mark.parametrize(
        ("key", "value"),
        [("cpus", 3), ("memory", "5g"), ("pids", 513), ("open_files", 5000), ("tmp", "2g"),
         ("disk", "9g"), ("inodes", 2_000_000), ("log_limit", "2g"), ("grace", 60)],
    )  # fmt: skip
    def test_a_limit_above_what_holds(self, tmp_path, key, value):
        found = self.refused(tmp_path, f"container: {{{key}: {value}}}")
        assert found == [f"1: `container.{key}` {self.WIDER}"]

    def test_more_worktrees_than_there_may_be(self, tmp_path):
        found = self.refused(tmp_path, "parallel_runs: {max_workers: 11}")
        assert found == [f"1: `parallel_runs.max_workers` {self.WIDER}"]
        found = self.refused(tmp_path, "parallel_runs: {max_worktrees: 21}")
        assert found == [f"1: `parallel_runs.max_worktrees` {self.WIDER}"]

    def test_a_worker_that_may_write_where_it_may_only_look(self, tmp_path):
        closed = {"options": {"read_only": True}}
        write(tmp_path, "container: {read_only: true}")
        assert load(top=tmp_path).isolation.read_only
        environ = {"ORCHESTRATOR_READ_ONLY": "true"}
        write(tmp_path, "container: {read_only: false}")
        assert load(closed["options"], top=tmp_path).isolation.read_only
        assert load(top=tmp_path, environ=environ).isolation.read_only

    def test_a_setup_that_may_more(self, tmp_path):
        text = "setup: [make]\nsetup_timeout: 0\ncontainer:\n  setup_network: open"
        closed = {"options": {"preset": "untrusted"}}
        assert self.refused(tmp_path, text, **closed) == [
            f"4: `container.setup_network` {self.WIDER}",
            f"2: `setup_timeout` {self.WIDER}",
        ]
        write(tmp_path, "setup: [make]\nsetup_timeout: 9\ncontainer: {setup_network: none}")
        assert load(top=tmp_path).project.setup == ("make",)

    def test_checks_that_may_more(self, tmp_path):
        text = "checks: [{run: make, timeout: 601}]\ncontainer:\n  check_network: open"
        closed = {"options": {"preset": "untrusted"}}
        assert self.refused(tmp_path, text, **closed) == [
            f"3: `container.check_network` {self.WIDER}",
            f"1: `checks` {self.WIDER}",
        ]
        write(tmp_path, "checks: [make]\ncontainer: {check_network: none}")
        assert load(top=tmp_path).project.checks[0].run == "make"

    @pytest.mark.parametrize("key", ["setup_network", "check_network"])
    def test_it_opens_no_network_though_the_agent_has_one(self, tmp_path, key):
        text = f"setup: [make]\nchecks: [make]\ncontainer: {{{key}: open}}"
        assert self.refused(tmp_path, text) == [f"3: `container.{key}` {self.WIDER}"]
        opened = {key: "open"}
        assert getattr(load(opened, top=tmp_path).isolation, key) == "open"

    def test_its_commands_are_closed_unless_an_option_has_others(self, tmp_path):
        text = "setup: [a]\nteardown: [b]\nchecks: [c]"
        file = write(tmp_path, text)
        found = load(top=tmp_path)
        assert found.closed_stages == ("setup", "teardown", "checks")
        assert (found.setup_network, found.teardown_network) == ("none", "none")
        assert found.isolation.network == "open"
        assert found.networks == {"open", "none"}
        mine = load({"setup": ("mine",), "checks": ("mine",)}, top=tmp_path)
        assert (mine.closed_stages, mine.setup_network) == (("teardown",), "open")
        opened = load({"setup_network": "open"}, top=tmp_path)
        assert (opened.closed_stages[0], opened.setup_network) == ("setup", "open")
        for named in (load(file=file), load(environ={"ORCHESTRATOR_CONFIG": str(file)})):
            assert (named.closed_stages, named.teardown_network) == ((), "open")
        assert ParallelConfig.model_validate_json(found.model_dump_json()) == found

    @pytest.mark.parametrize("place", ["orchestrator.yaml", ".orchestrator/config.yaml"])
    @pytest.mark.parametrize("kind", ["link", "folder", "fifo", "dangling"])
    def test_a_link_shows_nothing_of_what_it_leads_to(self, tmp_path, place, kind):
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "config.yaml").write_text("private-word: x\n")
        top = tmp_path / "top"
        file = top / place
        file.parent.mkdir(parents=True)
        if kind == "fifo":
            os.mkfifo(file)
        elif kind == "folder" and "/" in place:
            file.parent.rmdir()
            file.parent.symlink_to(elsewhere)
        elif kind == "folder":
            file.mkdir()
        else:
            file.symlink_to(elsewhere / ("config.yaml" if kind == "link" else "nothing"))
        with pytest.raises(ConfigError) as caught:
            load(top=top)
        assert "private-word" not in caught.value.message
        assert str(file) in caught.value.message
        if kind == "link":
            with pytest.raises(ConfigError, match="private-word"):
                load(file=file, top=top)

    def test_the_repository_itself_may_be_behind_a_link(self, tmp_path):
        (tmp_path / "top").mkdir()
        write(tmp_path / "top", "parallel_runs: {workers: 4}")
        (tmp_path / "link").symlink_to("top")
        assert load(top=tmp_path / "link").workers == 4

    @pytest.mark.parametrize("preset", ["ci", "trusted"])
    def test_a_preset_that_gives_more(self, tmp_path, preset):
        found = self.refused(tmp_path, f"parallel_runs: {{preset: {preset}}}")
        assert found == [f"1: `parallel_runs.preset` {self.WIDER}"]

    def test_the_preset_of_the_user_stands(self, tmp_path):
        text = """\
parallel_runs:
  timeout_per_worker: 0
container:
  network: open
  history: full
  memory: 2g
  idle_timeout: 5
"""
        assert self.refused(tmp_path, text, options={"preset": "untrusted"}) == [
            f"6: `container.memory` {self.WIDER}",
            f"4: `container.network` {self.WIDER}",
            f"5: `container.history` {self.WIDER}",
            f"2: `parallel_runs.timeout_per_worker` {self.WIDER}",
        ]

    def test_what_it_may_say(self, tmp_path):
        text = """\
parallel_runs: {models: [m], workers: 10, agent: plan,
  max_steps: 9, budget_per_worker: 5, timeout_per_worker: 0, fail_on: all,
  preset: untrusted}
container: {cpus: 2, memory: 4g, idle_timeout: 5, history: shallow, ports: [3000],
  network: open}
"""
        write(tmp_path, text)
        config = load(top=tmp_path)
        assert (config.workers, config.limits.memory) == (10, 4 * 1024**3)
        assert config.isolation.ports == {"PORT": 3000}

    def test_a_stronger_layer_may_loosen(self, tmp_path):
        write(tmp_path, "container: {memory: 8g, network: open}")
        assert load({"memory": "8g"}, top=tmp_path).limits.memory == 8 * 1024**3

    def test_the_documented_block_is_taken(self, tmp_path):
        write(tmp_path, DOCUMENTED.replace("timeout_per_worker: null", "timeout_per_worker: 900"))
        assert load(top=tmp_path).timeout == 900


class TestHints:
    """What to do about a mistake depends on where it was made."""

    @pytest.mark.parametrize(
        ("options", "text", "hint"),
        [
            ({}, "parallel_runs: {workers: 99}", "fix the file, then check it with "),
            (
                {"workers": "99"},
                "parallel_runs: {workers: 99}",
                "run `orchestrator parallel --help` ",
            ),
            (
                {"ports": "80", "network": "none"},
                "",
                "remove the ports, or use `--network open`",
            ),
        ],
    )
    def test_by_the_place(self, tmp_path, options, text, hint):
        with pytest.raises(ConfigError) as caught:
            load(options, file=write(tmp_path, text))
        assert caught.value.hint.startswith(hint)


def test_the_hint_names_the_file_that_was_named_and_no_other(tmp_path):
    for text, top, words in [("{}", None, "config schema`"), ("x: 1", None, "validate '"),
                             ("x: 1", tmp_path, "validate`")]:  # fmt: skip
        file = write(tmp_path, text, "a b.yaml" if top is None else "orchestrator.yaml")
        with pytest.raises(ConfigError) as caught:
            load(environ={"ORCHESTRATOR_GRACE": "x"}, file=None if top else file, top=top)
        assert words in caught.value.hint


def test_mistakes_inside_of_a_value_have_their_own_lines(tmp_path):
    text = """\
services:
  db:
    image: 3
    memory: 3x
    imag: x
    env:
      A: 3
    tmpfs: [data, /data, 3]
  web: {}
  x: y
"""
    file = write(tmp_path, text)
    kinds = "`image`, `command`, `env`, `port`, `health`, `health_timeout`, `variables`, `tmpfs`, "
    assert mistakes(file=file) == [
        f"{file}:3: `services.db.image` is `3`: must be text that is not empty",
        f"{file}:7: `services.db.env.A`: must be text",
        f"{file}:8: `services.db.tmpfs[1]` is `data`: must be text",
        f"{file}:8: `services.db.tmpfs[3]` is `3`: must be text",
        f"{file}:4: `services.db.memory` is `3x`: a size must be a number with a unit, such as "
        f"512m or "
        "4g",
        f"{file}:5: `services.db.imag` is unknown, did you mean `services.db.image`?",
        f"{file}:9: `services.web` needs `image`",
        f'{file}:10: `services.x` is `"y"`: must be a mapping with {kinds}`cpus`, `memory`, `pids`',
    ]


def test_every_setting_is_judged_for_a_file_that_nobody_named():
    """Who adds a key decides: a repository's file may say it, may not, or may not loosen it."""
    harmless = {
        "agent", "budget_per_worker", "budget_total", "caches", "dotenv", "enforce",
        "fail_fast", "fail_on", "max_steps", "rate_limit_wait", "tokens_per_worker",
        "tokens_total",
        "model", "models", "on_trigger", "paths", "ports", "preset", "prompts", "repeated_errors",
        "retries", "retry_delay", "retry_from", "retry_on", "setup", "silence", "stagger",
        "teardown", "timeout_per_worker", "workers",
        # Removes only workers that are merged and clean: nothing is lost by it.
        "retention",
        # New names alone, and no directory outside of the repository (`_leads_outside`).
        "branch", "worktree_dir",
    }  # fmt: skip
    judged = {*NAMED_ONLY, *BOUNDED}
    assert {name for name, field in FIELDS.items() if field not in judged} == harmless


class TestCheckFile:
    """A file by itself, whoever will name it."""

    def test_mistakes_and_what_needs_a_named_file(self, tmp_path):
        file = write(tmp_path, "container: {memory: 9g, cpus: x}\nagents: {shell: {image: i}}")
        check = check_file(file)
        assert check.problems == [f'{file}:1: `container.cpus` is `"x"`: must be a number above 0']
        assert check.named_only == [f"{file}:2: `agents.shell.image` {TestGuest.SEEN}"]

    def test_what_loosens_is_found_for_every_program_and_told_once(self, tmp_path):
        text = """\
parallel_runs: {preset: untrusted, max_worktrees: 30}
agents: {shell: {timeout_per_worker: 9}, architect: {}}
"""
        file = write(tmp_path, text)
        check = check_file(file)
        assert check.problems == []
        assert check.named_only == [f"{file}:1: `parallel_runs.max_worktrees` {TestGuest.WIDER}"]

    def test_what_does_not_go_together(self, tmp_path):
        file = write(tmp_path, "container: {ports: [80], network: none}")
        assert check_file(file).problems == [f"{file}: ports cannot be published with network none"]

    def test_an_agent_program_that_is_not_there(self, tmp_path):
        file = write(tmp_path, "parallel_runs: {agent_cli: shel}")
        (problem,) = check_file(file).problems
        assert problem.startswith(f"{file}:1: `parallel_runs.agent_cli` is `shel`: must be one of ")

    def test_a_file_that_is_right(self, tmp_path):
        right = FileCheck(problems=[], named_only=[], closed=())
        assert check_file(write(tmp_path, DOCUMENTED)) == right
        assert check_file(write(tmp_path, "setup: [make]")).closed == ("setup",)


class TestAutomatosx:
    def test_its_workers(self, tmp_path):
        text = '{"execution": {"maxConcurrentAgents": 4, "parallelDelegationEnabled": true}}'
        assert load(file=write(tmp_path, text, "automatosx.config.json")).workers == 4

    def test_its_range_and_what_is_not_there_yet(self, tmp_path):
        text = json.dumps({
            "execution": {"maxConcurrentAgents": 11, "parallelDelegationEnabled": 0,
                          "maxConcurentAgents": 1},
            "providers": {"gemini-cli": {"rateLimit": {"enabled": 1, "refilRate": 2}}},
        })  # fmt: skip
        file = write(tmp_path, text, "automatosx.config.json")
        assert mistakes(file=file) == [
            f"{file}:1: `execution.parallelDelegationEnabled` is `0`: must be `true` or `false`",
            f"{file}:1: `execution.maxConcurentAgents` is unknown, did you mean "
            "`execution.maxConcurrentAgents`?",
            f"{file}:1: `execution.maxConcurrentAgents` is `11`: {OF_MAX_WORKERS}",
            f"{file}:1: `providers.gemini-cli.rateLimit.enabled` is `1`: must be `true` or `false`",
            f"{file}:1: `providers.gemini-cli.rateLimit.refilRate` is unknown, did you mean "
            "`providers.gemini-cli.rateLimit.refillRate`?",
        ]

    def test_no_parallel_delegation_is_one_at_a_time(self, tmp_path):
        for agents in ("", '"maxConcurrentAgents": 4, '):
            text = f'{{"execution": {{{agents}"parallelDelegationEnabled": false}}}}'
            file = write(tmp_path, text, "automatosx.config.json")
            assert load(file=file).workers == 1

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("automatosx.config.json",
             '{"providers": {"gemini-cli": {"rateLimit": '
             '{"enabled": true, "capacity": 100, "refillRate": 10}}}}'),
            ("x.yaml", "providers: {gemini-cli: {rate_limit: {capacity: 100, refill_rate: 10}}}"),
            ("x.yaml", "providers: {gemini-cli: {rateLimit: {}}}"),
        ],
    )  # fmt: skip
    def test_its_rate_limits_in_either_spelling(self, tmp_path, name, text):
        limit = RateLimit(enabled=True, capacity=100, refill_rate=10.0)
        config = load(file=write(tmp_path, text, name))
        assert config.providers == {"gemini-cli": Provider(rate_limit=limit)}
        assert ParallelConfig.model_validate_json(config.model_dump_json()) == config

    def test_wrong_rate_limits_are_told_where_they_stand(self, tmp_path):
        text = """\
providers:
  gemini-cli:
    rate_limit:
      capacity: 0
      refill_rate: fast
  claude:
    rateLimit: {refillRate: 1, refill_rate: 1}
"""
        file = write(tmp_path, text)
        where = "providers.gemini-cli.rateLimit"
        assert mistakes(file=file) == [
            f"{file}:7: `providers.claude.rateLimit.refillRate` is set twice, in two spellings",
            f"{file}:4: `{where}.capacity` is `0`: must be a whole number, at least 1",
            f'{file}:5: `{where}.refillRate` is `"fast"`: must be a number above 0',
        ]

    def test_a_provider_has_a_usable_name(self, tmp_path):
        file = write(tmp_path, "providers: {bad name: {}}")
        (mistake,) = mistakes(file=file)
        assert mistake.startswith(f"{file}:1: `providers`: a name must consist of letters")

    def test_workers_under_both_names(self, tmp_path):
        text = "parallel_runs: {workers: 2}\nexecution: {maxConcurrentAgents: 4}"
        file = write(tmp_path, text)
        assert mistakes(file=file) == [
            f"{file}:2: `execution.maxConcurrentAgents` was already set by "
            f"{file}:1: `parallel_runs.workers`"
        ]


class TestAgents:
    """Defaults for one agent program."""

    TEXT = """\
parallel_runs: {max_steps: 5, image: general}
container: {env: {A: general, B: general}}
agents:
  shell: {max_steps: 7, model: m, image: own, env: {B: own, C: own}}
  architect: {max_steps: 9}
"""

    @pytest.mark.parametrize(
        ("options", "environ", "steps"),
        [
            ({}, {}, 9),
            ({"agent_cli": "shell"}, {}, 7),
            ({}, {"ORCHESTRATOR_AGENT_CLI": "shell"}, 7),
            ({"agent_cli": "shell"}, {"ORCHESTRATOR_MAX_STEPS": "8"}, 8),
            ({"agent_cli": "shell", "max_steps": "3"}, {"ORCHESTRATOR_MAX_STEPS": "8"}, 3),
        ],
    )
    def test_they_hold_for_the_program_that_is_run(self, tmp_path, options, environ, steps):
        config = load(options, environ=environ, file=write(tmp_path, self.TEXT))
        assert config.max_steps == steps

    def test_what_they_leave_out_is_the_general_s(self, tmp_path):
        file = write(tmp_path, self.TEXT)
        shell = load({"agent_cli": "shell"}, file=file)
        assert (shell.model, shell.image) == ("m", "own")
        assert shell.isolation.env == {"A": "general", "B": "own", "C": "own"}
        assert (load(file=file).model, load(file=file).image) == (None, "general")

    def test_mistakes_in_every_program_s_are_told(self, tmp_path):
        text = """\
agents:
  shel: {}
  shell: {max_steps: 0, network: none, modle: x}
  architect:
    env: {A: 3}
  """
        file = write(tmp_path, text)
        assert mistakes(file=file) == [
            f"{file}:2: `agents.shel` is unknown, did you mean `agents.shell`?",
            f"{file}:3: `agents.shell.network` is unknown, `network` belongs under `container`",
            f"{file}:3: `agents.shell.modle` is unknown, did you mean `agents.shell.model`?",
            f"{file}:3: `agents.shell.max_steps` is `0`: must be a whole number, at least 1",
            f"{file}:5: `agents.architect.env`, variable `A`: must be text; quote values that "
            f"look like numbers",
        ]

    @pytest.mark.parametrize("key", ["image: x", "api_base: x", "env: {A: b}"])
    def test_they_are_no_way_around_what_needs_a_named_file(self, tmp_path, key):
        file = write(tmp_path, f"agents: {{shell: {{{key}}}}}")
        with pytest.raises(ConfigError, match="not accepted from a file"):
            load(top=tmp_path)
        assert load(file=file)

    def test_a_longer_time_than_the_user_s_preset_is_refused(self, tmp_path):
        write(tmp_path, "agents: {shell: {timeout_per_worker: 9000}}")
        options = {"agent_cli": "shell", "preset": "untrusted"}
        with pytest.raises(ConfigError, match=r"agents\.shell\.timeout_per_worker. gives workers"):
            load(options, top=tmp_path)
        assert load({**options, "timeout_per_worker": "9"}, top=tmp_path).timeout == 9


def test_what_is_at_the_top_is_not_given_twice(tmp_path):
    assert load(file=write(tmp_path, "ports: [80]")).isolation.ports == {"PORT": 80}
    file = write(tmp_path, "container: {ports: [80]}\nports: [81]")
    assert mistakes(file=file) == [
        f"{file}:2: `ports` was already set by {file}:1: `container.ports`"
    ]


def test_a_key_in_the_wrong_place_is_told_the_right_one(tmp_path):
    file = write(tmp_path, "workers: 3\ncontainer: {checks: 3, agent: x}")
    assert f"{file}:1: `workers` is unknown, `workers` belongs under `parallel_runs`" in mistakes(
        file=file
    )


def test_a_list_may_be_given_as_a_variable():
    assert load(environ={"ORCHESTRATOR_ALLOW": "a, b"}).isolation.allow == ("a", "b")


@pytest.mark.parametrize("name", ["ORCHESTRATOR_PORT", "ORCHESTRATOR_SERVICE_HOST", "OTHER"])
def test_variables_of_others_are_left_alone(name):
    assert load(environ={name: "tcp://10.0.0.1:80"}).workers == 3


def test_the_published_schema_is_up_to_date():
    assert SCHEMA.read_text() == json.dumps(json_schema(), indent=2) + "\n", (
        "write it anew: python -c 'import json; "
        "from orchestrator.config.loading import json_schema; "
        f"print(json.dumps(json_schema(), indent=2))' > {SCHEMA}"
    )


class TestAuto:
    """`workers: auto` is as many as the machine has room for."""

    def test_it_goes_by_what_a_worker_may_use(self, tmp_path: Path) -> None:
        cpus = len(os.sched_getaffinity(0))
        half = self.workers(tmp_path, {"workers": "auto", "cpus": "0.5", "memory": "16m"})
        assert half == min(10, cpus * 2)
        assert self.workers(tmp_path, {"workers": "auto", "memory": "1t"}) == 1
        two = {"workers": "auto", "cpus": "0.1", "memory": "16m", "tasks": ("a", "b")}
        assert self.workers(tmp_path, two) == 2

    def test_a_stronger_number_beats_it_and_it_beats_a_weaker_one(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text("parallel_runs: {workers: auto}\n")
        assert self.workers(tmp_path, {"workers": "7"}, file=file) == 7
        file.write_text("parallel_runs: {workers: 7}\n")
        assert self.workers(tmp_path, {"workers": "auto", "memory": "1t"}, file=file) == 1

    def workers(self, top: Path, options: Mapping[str, object], file: Path | None = None) -> int:
        given = {"tasks": ("t",) * 10, **options}
        return load_config(options=given, environ={}, top=top, file=file).workers


class TestHostileFile:
    """A file of a repository that is made to be printed, to cost time, or to break us."""

    SAID = (
        '"\\e[31m\\u202e##vso[a.b]c": 1\n',
        '"##[add-mask]x": 1\n"::add-mask::x": 2\n"x\\n::add-mask::x": 3\n"--- x": 4\n',
        'checks: [{run: x, name: "##vso[a.b]c\\n::add-mask::x", timeout: y}]\n',
        "!<##vso[a.b]c> x\n",
        "%TAG ! tag:x,2000:##vso[a.b]\n---\n!a x\n",
        '{"##[add-mask]x": 1, "##[add-mask]x": 2}',
    )
    REFUSED = (
        "parallel_runs: {timeout_per_worker: 1e999}\n",
        "parallel_runs: {timeout_per_worker: .nan}\n",
        '{"parallel_runs": {"timeout_per_worker": NaN}}',
        f"parallel_runs: {{workers: {'9' * 5000}}}\n",
        'parallel_runs: {model: "\\ud800"}\n',
        'setup: ["\\ud800"]\n',
        "setup: [a\0b]\n",
        "a: &a [x, x]\nb: [*a, *a]\n",
        "[" * 100_000,
        "- " * 5000,
        "parallel_runs: {}\nparallel_runs: {}\n",
        "!!python/object/apply:os.system ['touch pwned']\n",
        "<<: {setup: [x]}\n",
        '"' + "\\n" * 120_000,
        "dotenv: ../../x\nports: [80]\n",
        "dotenv: a/.git/hooks/x\nports: [80]\n",
        'parallel_runs: {model: "--proxy=http://a.example"}\n',
        'parallel_runs: {models: [" -x"]}\n',
        "parallel_runs: {agent: -x}\n",
    )

    @pytest.mark.process
    @pytest.mark.parametrize("text", [*SAID, *REFUSED])
    def test_it_is_refused_and_steers_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, capsys
    ) -> None:
        monkeypatch.setenv("TF_BUILD", "True")
        write(tmp_path, text)
        monkeypatch.chdir(tmp_path)
        assert run(["config", "validate", "orchestrator.yaml"]) == 3
        shown = capsys.readouterr()
        assert commands_in(shown.out, shown.err) == []
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown.err)
        assert len(shown.err) < 2000
        assert not (tmp_path / "pwned").exists()

    def test_not_every_mistake_of_thousands_is_told(self, tmp_path: Path) -> None:
        text = "".join(f"k{number}: 1\n" for number in range(2000))
        file = write(tmp_path, text)
        with pytest.raises(ConfigError) as caught:
            load_config(options={"tasks": ["x"]}, environ={}, top=None, file=file)
        assert caught.value.message.startswith("2000 mistakes in the configuration:\n")
        assert caught.value.message.endswith("\n  and 1950 more")

    def test_a_deadline_that_no_clock_knows_is_a_long_one(self, tmp_path: Path) -> None:
        file = write(tmp_path, "parallel_runs: {timeout_per_worker: 1e308}\n")
        config = load_config(options={"tasks": ["x"]}, environ={}, top=None, file=file)
        assert config.timeout == 1e9
