"""Tests of files of AutomatosX, and of the templates that its texts use."""

import json
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_settings
from orchestrator.config.workflow.parsing.reader import Reading, read_workflow

STEPS = """
workflowId: tidy
version: "1.0.0"
name: Tidy up
description: Removes what is there twice
steps:
  - stepId: look
    type: prompt
    name: Look
    timeout: 60000
    retryPolicy: {maxAttempts: 3}
    config: {agentId: architecture, prompt: List duplicates.}
  - {stepId: change, type: prompt, ORDER config: {agentId: backend, prompt: Remove them.}}
  - {stepId: tell, type: delegate, config: {agentId: writer, prompt: Tell.}}
metadata: {category: development}
"""
KEYED = """
name: review
version: 1.0.0
author: A
tags: [a]
config: {timeout: 300000, parallelism: 3}
steps:
  - {key: parse, agent: backend, prompt: Parse it, dependencies: [], timeoutMs: 30000}
  - {key: audit, agent: security, prompt: Audit it, dependencies: [parse], optional: true}
"""
ACTORS = """
version: "1.0"
metadata: {id: adder, name: Adder, version: "1.0.0", tags: [x]}
actors:
  - {id: main, agent: backend, description: Write the adder, timeout: 300000}
  - {id: two, agent: quality, description: Test it, permissions: {network: {enabled: true}}}
policy: {goal: balanced, constraints: {privacy: {dataClassification: internal}}}
recovery: {retry: {maxAttempts: 3}}
"""


def read(tmp_path: Path, text: str) -> Reading:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    return read_workflow(file)


@pytest.mark.parametrize(
    ("text", "name", "tasks", "notice"),
    [
        (
            STEPS.replace("ORDER", ""),
            "Tidy up",
            {
                "look": ("List duplicates.", "architecture", (), 60.0),
                "change": ("Remove them.", "backend", ("look",), None),
                "tell": ("Tell.", "writer", ("change",), None),
            },
            "`retryPolicy`",
        ),
        (
            STEPS.replace("ORDER", "dependsOn: [look],"),
            "Tidy up",
            {
                "look": ("List duplicates.", "architecture", (), 60.0),
                "change": ("Remove them.", "backend", ("look",), None),
                "tell": ("Tell.", "writer", (), None),
            },
            "`retryPolicy`",
        ),
        (
            KEYED,
            "review",
            {
                "parse": ("Parse it", "backend", (), 30.0),
                "audit": ("Audit it", "security", ("parse",), None),
            },
            "`author`, `tags`, `config`",
        ),
        (
            ACTORS,
            "Adder",
            {
                "main": ("Write the adder", "backend", (), 300.0),
                "two": ("Test it", "quality", (), None),
            },
            "`permissions`, `policy`, `recovery`",
        ),
    ],
)
def test_published_shapes_are_read(
    tmp_path: Path,
    text: str,
    name: str,
    tasks: dict[str, tuple[str, str, tuple[str, ...], float | None]],
    notice: str,
) -> None:
    reading = read(tmp_path, text)
    assert reading.workflow.name == name
    found = {
        task.id: (task.task, task.settings.agent, task.depends_on, task.settings.timeout)
        for task in reading.workflow.tasks
    }
    assert found == tasks
    assert reading.notices == (f"keys of this file of AutomatosX have no effect here: {notice}",)


def test_optional_step_is_not_critical(tmp_path: Path) -> None:
    assert [task.critical for task in read(tmp_path, KEYED).workflow.tasks] == [None, False]


@pytest.mark.parametrize("kind", ["tool", "conditional", "loop", "parallel", "discuss"])
def test_step_that_no_agent_performs_is_a_mistake(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"steps: [{{stepId: a, prompt: b}}, {{stepId: c, type: {kind}}}]")
    assert f"the step 2 of the file is of the type `{kind}`" in caught.value.message


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("{{vars.lang}}", "go"),
        ("{{ vars.lang }}", "go"),
        ("{{lang}}", "go"),
        ("{{item.title}} {{item.n}} {{item.in.0}}", "One 1 a"),
        ("{{item.title|quote}}", "One"),
        ("{{index}} {{ user.name }}", "1 {{ user.name }}"),
        ("{{index}} ${{ env.HOME }} ${{ vars.X }}", "1 ${{ env.HOME }} ${{ vars.X }}"),
        (r"{{index}} \{{item.title}}", "1 {{item.title}}"),
        ("{{index}} {{a-b}} {{x.y.z}}", "1 {{a-b}} {{x.y.z}}"),
    ],
)
def test_templates_with_parts_get_their_values(tmp_path: Path, text: str, becomes: str) -> None:
    if "index" not in text and "item" not in text:
        text, becomes = text + "{{index}}", becomes + "1"
    items = [{"title": "One", "n": 1, "in": ["a"]}]
    tasks = [{"id": "t", "foreach": items, "task": text}]
    (task,) = read(tmp_path, json.dumps({"vars": {"lang": "go"}, "tasks": tasks})).workflow.tasks
    assert task.task == becomes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{env.HOME}}", "pass it with `--var HOME=VALUE`"),
        ("{{vars.none}}", "which has no value"),
        ("{{vars.a.b}}", "only an item has parts"),
        ("{{items.title}}", "only an item has parts"),
        ("{{results.x}}", "only an item has parts"),
        ("{{item.none}}", "has no such part"),
        ("{{item.title.more}}", "has no such part"),
        ("{{first-one}}", "name it in `reduce`"),
        ("{{first-one.files}}", "name it in `reduce`"),
    ],
)
def test_templates_without_a_value_are_never_sent(tmp_path: Path, text: str, why: str) -> None:
    tasks = [
        {"id": "first-one", "task": "x"},
        {"id": "t", "foreach": [{"title": "One"}], "task": "{{index}} " + text},
    ]
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, json.dumps({"tasks": tasks}))
    assert why in caught.value.message


def test_keys_of_its_configuration_file_are_ignored_by_name(tmp_path: Path) -> None:
    provider = {"enabled": True, "command": "claude", "rateLimit": {"capacity": 7}}
    content = {
        "providers": {"claude-code": provider, "gemini-cli": {"priority": 1}},
        "execution": {"defaultTimeout": 1, "concurrency": {"maxConcurrentAgents": 4, "x": 1}},
        "memory": {"maxEntries": 10},
        "version": "7.0.0",
    }
    file = tmp_path / "automatosx.config.json"
    file.write_text(json.dumps(content))
    settings = load_settings(options={"tasks": ("a",)}, environ={}, top=None, file=file)
    assert settings.config.workers == 4
    limit = settings.config.providers["claude-code"].rate_limit
    assert limit is not None
    assert limit.capacity == 7
    assert settings.ignored == (
        "providers.claude-code.enabled", "providers.claude-code.command",
        "providers.gemini-cli.priority", "execution.defaultTimeout", "memory", "version",
    )  # fmt: skip
    other = tmp_path / "orchestrator.json"
    other.write_text(json.dumps(content))
    with pytest.raises(ConfigError) as caught:
        load_settings(options={"tasks": ("a",)}, environ={}, top=None, file=other)
    assert "`memory` is unknown" in caught.value.message
