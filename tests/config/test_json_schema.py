"""Tests that the published JSON Schemas accept the same files as the commands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.document import read_document
from orchestrator.config.loading.loading import check_file, json_schema
from orchestrator.config.node import DocumentError
from orchestrator.config.workflow.parsing.dialects import json_schema as manifest_schema
from orchestrator.config.workflow.parsing.reader import read_workflow

ROOT = Path(__file__).parents[2]
CONFIG = Draft202012Validator(json_schema())
WORKFLOW = Draft202012Validator(manifest_schema())


def files() -> Iterator[Path]:
    for folder in ("examples", "tests/data/workflows"):
        for suffix in ("yaml", "json"):
            yield from sorted((ROOT / folder).rglob(f"*.{suffix}"))


def plain(path: Path) -> Any:
    return read_document(path).plain()


def problems(validator: Draft202012Validator, found: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]


def is_config(path: Path) -> bool:
    return not check_file(path).problems


def test_schemas_are_valid_json_schemas() -> None:
    Draft202012Validator.check_schema(json_schema())
    Draft202012Validator.check_schema(manifest_schema())


@pytest.mark.parametrize("path", [*files()], ids=lambda path: path.name)
def test_every_file_of_the_project_is_valid(path: Path) -> None:
    validator = CONFIG if is_config(path) else WORKFLOW
    assert problems(validator, plain(path)) == []


CONFIGS = [
    "",
    "parallel_runs:\n",
    "parallel_runs: {workers: auto, tasks: [a], models: [], retry_on: [timeout]}",
    "parallel_runs: {budget_per_worker: null, timeout_per_worker: 0, preset: ci}",
    "container: {memory: 512m, disk: 2GiB, tmp: 1048576, env: {A: b}, ports: [3000]}",
    "container: {ports: {PORT: 3000}, copy: ['*.env'], secrets: [TOKEN]}",
    "ports: [3000, 3001]\ncopy: [a]",
    "checks: [make test, {run: make lint, name: lint, timeout: 3}]",
    "services: {db: {image: pg, memory: 1g, command: [a], env: {A: b}}}",
    "providers: {claude: {rateLimit: {capacity: 2, refillRate: 1}}}",
    "providers: {claude: {rate_limit: {capacity: 2, refill_rate: 0.5, enabled: false}}}",
    "execution: {maxConcurrentAgents: 4, parallelDelegationEnabled: true}",
    "execution: {parallelDelegationEnabled: false}",
    "execution:\n",
    "agents: {claude: {model: m, max_steps: 3, env: {A: b}}}",
    "agents: {claude: }",
    "triggers: {paths: [src], on_trigger: stop, silence: 3}",
    "judge: {instruments: ['ci/*.sh']}",
]
WORKFLOWS = [
    "tasks: [{id: a, task: b, mode: ro, limits: {memory: 1g}, ports: [3000], when: always}]",
    "tasks: [{id: a, task: b}, {id: c, depends_on: a, resources: db, complexity: high}]",
    "- backend: do it\n- build: do that",
    "- [{id: a, task: b}]\n- [{id: c, task: d}]",
    "stages: [{name: one, tasks: [{id: a, task: b}]}, {name: 2, tasks: [{id: c, task: d}]}]",
    "tasks: [{id: a, task: '{{items}}', foreach: [1, 2.5, true, x], batch: 2}]",
    "tasks: [{id: a, task: '{{item}}', foreach: {glob: 'src/*'}}]",
    "tasks: [{id: a, task: '{{item}}', foreach: {glob: [a, b]}}]",
    "tasks: [{id: a, task: '{{item}}', foreach: {json: l.json}}, {reduce: a, task: '{{results}}'}]",
    "defaults: {model: m, limits: {cpus: 1}}\ntasks: [{name: a, task: b, checks: [x, {run: y}]}]",
    "vars: {a: 1, c: x}\ntasks: [{id: d, task: '{{a}}{{c}}'}]",
    "policy: {constraints: {maxLatency: 5000, privacy: private}}\ntasks: [{id: d, task: e}]",
    "tasks: [{id: a, task: b, services: {db: {image: pg}}, setup: [x], paths: [src]}]",
]


@pytest.mark.parametrize("text", CONFIGS)
def test_valid_configuration_is_accepted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.yaml"
    path.write_text(text)
    assert check_file(path).problems == []
    assert problems(CONFIG, plain(path)) == []


@pytest.mark.parametrize("text", WORKFLOWS)
def test_valid_workflow_is_accepted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    read_workflow(path, variables={})
    assert problems(WORKFLOW, plain(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "parallel_runs: {wokers: 3}",
        "parallel_runs: {workers: 0}",
        "execution: {parallelDelegationEnabled: maybe}",
        "providers: {claude: {rateLimit: {capacity: 0}}}",
        "container: {memory: lots}",
    ],
)
def test_invalid_configuration_is_rejected(text: str, tmp_path: Path) -> None:
    path = tmp_path / "orchestrator.yaml"
    path.write_text(text)
    assert check_file(path).problems
    assert problems(CONFIG, plain(path))


@pytest.mark.parametrize(
    "text",
    [
        "tasks: [{id: a, task: b, dependson: c}]",
        "tasks: [{id: a, task: b, mode: rx}]",
        "nothing: 1",
    ],
)
def test_invalid_workflow_is_rejected(text: str, tmp_path: Path) -> None:
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    with pytest.raises((ConfigError, DocumentError)):
        read_workflow(path, variables={})
    assert problems(WORKFLOW, plain(path))


def test_published_files_equal_the_schemas() -> None:
    reference = ROOT / "docs" / "reference"
    for name, schema in (("config", json_schema()), ("manifest", manifest_schema())):
        assert json.loads((reference / f"{name}.schema.json").read_text()) == schema
