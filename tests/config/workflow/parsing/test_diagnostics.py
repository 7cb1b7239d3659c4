"""Tests that all mistakes of a workflow file are reported at once, with their lines."""

import re
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.suggest import MOST_SUGGESTIONS
from orchestrator.config.workflow.parsing import diagnostics
from orchestrator.config.workflow.parsing.reader import read_workflow
from tests.support.errors import raises


def mistakes(tmp_path: Path, text: str, name: str = "flow.yaml", **given: object) -> list[str]:
    """Return the reported mistakes of an invalid file, without the directory."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_workflow(path, **given)  # type: ignore[arg-type]
    assert caught.value.exit_code == 3
    lines = caught.value.message.replace(f"{tmp_path}/", "").splitlines()
    if len(lines) == 1:
        return lines
    more = re.fullmatch(r"  and ([0-9]+) more", lines[-1])
    number = len(lines) - 1 + (int(more[1]) - 1 if more else 0)
    assert lines[0] == f"{number} mistakes in the workflow:"
    return [line.strip() for line in lines[1:]]


CODE = (
    "contains `{{results}}`, which a shell would interpret as code: read the results from the file "
    "`$ORCHESTRATOR_RESULTS` instead"
)
BAD = """\
name: Bad
taskz: []
policy:
  constraints:
    maxLatency: -1
    privcy: private
defaults:
  modle: x
vars:
  ticket: null
tasks:
  - id: a
    timeout: soon
    depends_on: [bb]
    agent_cli: clode
  - id: b
    dependson: [a]
    task: do {{tikcet}} and {{item}}
  - id: a
  - name: has blank
    limits: {memory: lots, cpuz: 3}
  - id: d
    services:
      DB: {image: x}
    checks: [{run: "x", tiemout: 3}]
  - 3
  - taks: hello
  - id: g
    batch: 0
    stage: [x]
    when: never
"""


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    programs = "`aider`, `architect`, `claude`, `codex`, `gemini`, `mini`, `opencode`, `shell`"
    assert mistakes(tmp_path, BAD) == [
        "flow.yaml:2: `taskz` is unknown, did you mean `tasks`?",
        "flow.yaml:5: `policy.constraints.maxLatency` is `-1`: must be "
        "a number above 0, at most 1000000000000",
        "flow.yaml:6: `policy.constraints.privcy` is unknown, "
        "did you mean `policy.constraints.privacy`?",
        "flow.yaml:8: `defaults.modle` is unknown, did you mean `defaults.mode`?",
        "flow.yaml:10: `vars.ticket` has no value: set it with `--var ticket=VALUE`",
        'flow.yaml:13: `tasks[1].timeout` is `"soon"`: must be a number from 0 to 1000000000',
        "flow.yaml:14: `tasks[1].depends_on` names `bb`, which is not a task, did you mean `b`?",
        f"flow.yaml:15: `tasks[1].agent_cli` is `clode`: must be one of {programs}",
        "flow.yaml:17: `tasks[2].dependson` is unknown, did you mean `tasks[2].depends_on`?",
        "flow.yaml:18: `tasks[2].task` contains `{{tikcet}}`, which has no value, "
        "did you mean `ticket`?",
        "flow.yaml:18: `tasks[2].task` contains `{{item}}`, which requires `foreach`",
        "flow.yaml:19: `tasks[3].id` is `a`, which another task on line 12 already has",
        "flow.yaml:20: `tasks[4].name` is `has blank`: the id of a task must consist of letters, "
        "digits, `.`, `_` and `-`, start with a letter or digit, and have at most 100 characters",
        "flow.yaml:21: `tasks[4].limits.memory` is `lots`: a size must be a number with a unit, "
        "such as "
        "512m or 4g",
        "flow.yaml:21: `tasks[4].limits.cpuz` is unknown, did you mean `tasks[4].limits.cpus`?",
        "flow.yaml:23: `tasks[5].services`: a service's name must be a lowercase host name, "
        "such as `db` "
        "or `my-db`",
        "flow.yaml:25: `tasks[5].checks[1].tiemout` is unknown, "
        "did you mean `tasks[5].checks[1].timeout`?",
        "flow.yaml:26: `tasks[6]` is `3`: must be a mapping of keys to values",
        "flow.yaml:27: `tasks[7].taks` is unknown, did you mean `tasks[7].task`?",
        "flow.yaml:29: `tasks[8].batch` is `0`: must be a whole number from 1 to 1000000000000",
        "flow.yaml:30: `tasks[8].stage`: must be text or a whole number",
        "flow.yaml:31: `tasks[8].when` is `never`: must be one of `on_success`, `on_failure`, "
        "`always`",
    ]


CASES = {
    "itself": ("tasks: [{id: a, depends_on: a}]", "1: tasks depend on each other: a -> a"),
    "circle": (
        "tasks:\n- {id: x}\n- {id: c, depends_on: [b, x]}\n- {id: b, depends_on: a}\n"
        "- {id: a, depends_on: c}\n- {id: y, depends_on: a}\n",
        "3: tasks depend on each other: c -> b -> a -> c",
    ),
    "against the stages": (
        "stages:\n- [{id: a, depends_on: b}]\n- [{id: b}]\n",
        "2: tasks depend on each other: a -> b -> a",
    ),
    "said twice": (
        "tasks: [{id: a}, {id: b, depends_on: a, dependencies: a}]",
        "1: `tasks[2]`: `depends_on` and `dependencies` mean the same: use only one of them",
    ),
    "no stage": (
        "stages: [build]\ntasks:\n- {id: a, stage: biuld}\n",
        "3: `tasks[1].stage` is `biuld`, which is not a stage, did you mean `build`?",
    ),
    "two stages": (
        "stages:\n- [{id: a, stage: b}]\n",
        "2: `stages[1].tasks[1].stage`: the task is already listed in a stage",
    ),
    "nothing": (
        "name: x",
        "1: the file: a workflow must have at least one task, in `tasks` or `stages`",
    ),
    "no mapping": ("just text", None),
    "tasks by name": (
        "tasks: {a: {task: x}}",
        "1: `tasks`: must be a list, each item a mapping of keys to values",
    ),
    "null byte": (
        'tasks: ["a\\0b"]',
        "1: a text contains NUL or a lone surrogate, which is not valid Unicode",
    ),
    "empty text": ("tasks: ['  ']", "1: `tasks[1].task` is ``: a task must not be empty"),
    "results alone": (
        "tasks: ['see {{results}}']",
        "1: `tasks[1].task` contains `{{results}}`, which requires `reduce`",
    ),
    "results in a command": (
        "tasks: [{id: a}, {reduce: a, agent_cli: shell, task: 'echo {{results}}'}]",
        f"1: `tasks[2].task` {CODE}",
    ),
    "results in a command, by default": (
        "defaults: {agent_cli: shell}\ntasks: [{id: a}, {reduce: a, task: '{{results}}'}]",
        f"2: `tasks[2].task` {CODE}",
    ),
    "results elsewhere": (
        "tasks: [{id: a}, {reduce: a, setup: 'x {{results}}'}]",
        "1: `tasks[2].setup[1]` contains `{{results}}`, which is allowed only in `task` and "
        "without a filter",
    ),
    "a filter": (
        "vars: {a: 1}\ntasks: ['x {{ a | upper }}']",
        "2: `tasks[1].task` contains `{{ a | upper }}`: the only filter is `|quote`",
    ),
    "a variable's name": (
        "vars: {item: 1}\ntasks: [x]",
        "1: `vars`: `item` is a built-in name in templates",
    ),
    "private": (
        "policy: {constraints: {privacy: private}}\ntasks:\n- {id: a, network: open}\n",
        "3: `tasks[1]`: `network` is `open`, but `policy.constraints.privacy` is `private`",
    ),
    "a port twice": (
        "defaults: {services: {db: {image: i, port: 80}}}\ntasks:\n- {id: a, ports: [80]}\n",
        "3: `tasks[1]`: port 80 is already used by service `db`",
    ),
    "empty for a variable": (
        "vars: {m: ''}\ntasks: [{id: a, model: '{{m}}'}]",
        "2: `tasks[1].model` is ``: must be text that is not empty",
    ),
    "no source": (
        "tasks: [{id: a, task: '{{item}}', foreach: {glob: x, json: y}}]",
        "1: `tasks[1].foreach`: exactly one of the keys `items`, `words`, `glob`, `json`, "
        "`command` is required",
    ),
    "no item told": (
        "tasks: [{id: a, foreach: [x]}]",
        "1: `tasks[1].task` must contain the item: use `{{item}}` or `{{items}}`",
    ),
    "one item of many": (
        "tasks: [{id: a, task: '{{item}}', foreach: [x], batch: 2}]",
        "1: `tasks[1].task` contains `{{item}}`; use `{{items}}` with `batch`",
    ),
    "a batch of nothing": (
        "tasks: [{id: a, batch: 2}]",
        "1: `tasks[1]`: `batch` needs `foreach`",
    ),
    "a line break among many": (
        'tasks: [{id: a, task: "{{items}}", foreach: ["x\\ny"], batch: 2}]',
        "1: `tasks[1].foreach`: the item `x y` has more than one line, which `batch` cannot "
        "separate from other items",
    ),
    "an item that is a template": (
        "tasks: [{id: r}, {id: a, task: '{{item}}', foreach: ['{{ results }}'], reduce: r}]",
        "1: `tasks[2].foreach.items[1]` contains `{{ results }}`, which is allowed only in `task` "
        "and without a filter",
    ),
    "the id of another's batch": (
        "tasks: [{id: a, task: '{{item}}', foreach: [x]}, {id: a-1}]",
        "1: `tasks[1]` creates a task `a-1`, but that id is already used",
    ),
    "no item at all": (
        "tasks: [{id: a, task: '{{item}}', foreach: []}]",
        ": the workflow has no tasks: the list of each `foreach` is empty",
    ),
}


@pytest.mark.parametrize(("text", "told"), CASES.values(), ids=CASES.keys())
def test_mistake_is_reported_with_its_line(tmp_path: Path, text: str, told: str | None) -> None:
    found = mistakes(tmp_path, text)
    if told is None:
        assert found[0].startswith('flow.yaml:1: the file is `"just text"`: must be a')
    else:
        between = "" if told.startswith(":") else ":"
        assert found == [f"flow.yaml{between}{told}"]


def test_each_cycle_is_a_mistake(tmp_path: Path) -> None:
    text = (
        "tasks:\n- {id: a, depends_on: b}\n- {id: b, depends_on: a}\n- {id: c, depends_on: [c, a]}"
    )
    assert mistakes(tmp_path, text) == [
        "flow.yaml:2: tasks depend on each other: a -> b -> a",
        "flow.yaml:4: tasks depend on each other: c -> c",
    ]


def test_mistakes_in_json_have_lines(tmp_path: Path) -> None:
    text = '{"tasks": [\n {"id": "a",\n  "timeout":\n"x"},\n {"id": "b", "depends_on":\n ["c"]}\n]}'
    assert mistakes(tmp_path, text, "flow.json") == [
        'flow.json:3: `tasks[1].timeout` is `"x"`: must be a number from 0 to 1000000000',
        "flow.json:6: `tasks[2].depends_on` names `c`, which is not a task",
    ]


def test_lone_surrogate_is_refused(tmp_path: Path) -> None:
    assert mistakes(tmp_path, '{"tasks": ["\\ud800"]}', "flow.json") == [
        "flow.json:1: a text contains NUL or a lone surrogate, which is not valid Unicode"
    ]


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.yaml: the file cannot be read: No such file"):
        read_workflow(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## Paralel Agents\n", "1: `Paralel Agents` is unknown, did you mean `Parallel Agents`?"),
        ("# Team\n### a\nDo\n", "2: the section `a` must be below `## Parallel Agents`"),
        (
            "## Parallel Agents\n### a\n### A\n",
            "3: `tasks[2].id` is `a`, which another task on line 2 already has",
        ),
        ("# Team\nProse\n", "1: the file: a workflow must have"),
    ],
)
def test_mistake_in_a_squad_file(tmp_path: Path, text: str, told: str) -> None:
    (found,) = mistakes(tmp_path, text, "SQUAD.md")
    assert found.startswith(f"SQUAD.md:{told}")


def test_text_in_messages_is_made_harmless(tmp_path: Path) -> None:
    told = mistakes(tmp_path, '"tasks": [{"id": "a", "depends_on": ["\\e[2J\\u202e"]}]')
    assert len(told) == 2
    assert all(line.isprintable() and "[2J" in line for line in told)


def test_unused_variable_is_reported(tmp_path: Path) -> None:
    given = {"tikcet": "1", "ticket": "2"}
    assert mistakes(tmp_path, "tasks: ['{{ticket}}']", variables=given) == [
        "flow.yaml: no text uses the variable `tikcet`, did you mean `ticket`?"
    ]


def test_number_of_mistakes_is_bounded(tmp_path: Path) -> None:
    lines = mistakes(tmp_path, "tasks:\n" + "- 1\n" * 70)
    assert len(lines) == 51
    assert lines[-1] == "and 20 more"


def test_only_the_first_of_many_mistakes_have_suggestions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suggestion compares a name with all others: 5,500 suggestions took half a minute."""
    asked = []
    monkeypatch.setattr(diagnostics, "did_you_mean", lambda text, _: asked.append(text) or "")
    text = "\n".join(f"- {{id: t{n}, task: x, depends_on: nope{n}}}" for n in range(400))
    (tmp_path / "flow.yaml").write_text(f"tasks:\n{text}\n")
    with raises("workflow.invalid", "400 mistakes"):
        read_workflow(tmp_path / "flow.yaml")
    assert asked == [f"nope{n}" for n in range(MOST_SUGGESTIONS)]
