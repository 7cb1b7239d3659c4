"""Tests of the precedence of options, variables, file and defaults."""

import json
from pathlib import Path

import pytest

from orchestrator.config.loading.loading import json_schema
from orchestrator.config.settings.run import ParallelConfig
from tests.support.settings import DOCUMENTED, load, write

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "config.schema.json"


def test_documented_block_equals_the_defaults(tmp_path):
    config = load(file=write(tmp_path, DOCUMENTED))
    assert config == ParallelConfig(
        tasks=("t",), workers=3, agent="build", max_steps=50, budget_per_worker=None
    )
    assert config.timeout == 600


def test_null_counts_as_not_given(tmp_path):
    config = load(file=write(tmp_path, "parallel_runs: {workers: null, timeout_per_worker: ~}"))
    assert "workers" not in config.model_fields_set
    assert config.timeout_per_worker == 600


def test_precedence_is_option_environment_file_default(tmp_path):
    file = write(tmp_path, "parallel_runs: {workers: 4, agent: a, max_steps: 7}")
    environ = {"ORCHESTRATOR_WORKERS": "5", "ORCHESTRATOR_AGENT": "b"}
    config = load({"workers": "6"}, environ=environ, file=file)
    assert (config.workers, config.agent, config.max_steps) == (6, "b", 7)
    assert config.fail_on == "any"


def test_empty_variable_counts_as_not_set():
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
def test_ports_may_be_a_list_or_a_mapping(tmp_path, text):
    config = load(file=write(tmp_path, text))
    assert config.isolation.ports == {"PORT": 3000, "API_PORT": 3010}


def test_published_schema_is_up_to_date():
    assert SCHEMA.read_text() == json.dumps(json_schema(), indent=2) + "\n", (
        "write it again: python -c 'import json; "
        "from orchestrator.config.loading.loading import json_schema; "
        f"print(json.dumps(json_schema(), indent=2))' > {SCHEMA}"
    )
