"""Convert every supported way to write a workflow to a single form, and describe all in a schema.

The conversion works on parsed nodes, so that every part keeps its line number.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.fields import kinds, whole_schema
from orchestrator.config.loading.json_schema import nullable, publish
from orchestrator.config.node import Node
from orchestrator.config.settings.container import Limits
from orchestrator.config.workflow.parsing.diagnostics import Mistakes
from orchestrator.config.workflow.parsing.manifest import (
    Constraints,
    Foreach,
    Manifest,
    ManifestTask,
    Policy,
    Stage,
)

_SHORTHAND = re.compile(r"(?P<agent>[a-z][A-Za-z0-9_-]*):(?P<task>(?:[^\W\d_]|[\"'`]).*)", re.S)
"""Pattern of a task with a profile, as `backend:Implement it`. It does not match `note: this`,
URLs, `localhost:80`, `std::move` or `TODO:fix it`. A profile that starts with a capital letter must
be given with `agent`.
"""
PROFILES = frozenset(
    {
        *("analyst", "architect", "architecture", "backend", "build", "ceo", "coder", "cto"),
        *("data", "database", "debugger", "design", "designer", "developer", "devops", "engineer"),
        *("frontend", "fullstack", "infrastructure", "mobile", "plan", "planner", "product", "qa"),
        *("quality", "research", "researcher", "reviewer", "security", "tester", "web", "writer"),
    }
)
"""Profiles that a file may write as `backend: Implement it`, which YAML takes for a mapping. A file
may write others so if it names them with `agent` somewhere. Every other mapping with a single key
is a text whose quotes were forgotten, such as `fix the login: users cannot sign in`.
"""
TEXTS = ("id", "name", "task", "agent", "agent_cli", "model", "image")
"""Keys of a task whose values are text, so that `010` and `1.10` are not changed as numbers would
be.
"""
_NAMES = ("depends_on", "dependencies", "reduce", "inputs")
LISTS = (*_NAMES, "resources", "paths", "touches", "setup")
"""Keys of a task whose values are lists; a list with a single item may be written without brackets.
"""


def as_manifest(root: Node, mistakes: Mistakes, notices: list[str]) -> Node:
    """Convert a workflow in any supported form to a mapping with `tasks` and `stages`.

    Args:
        root: The file.
        mistakes: Collects the problems.
        notices: List to which messages for the user are appended.
    """
    for key, read in (("steps", _step), ("actors", _actor)):
        listed = root.value.get(key) if isinstance(root.value, dict) else None
        is_manifest = isinstance(root.value, dict) and bool({"tasks", "stages"} & root.value.keys())
        if listed is not None and isinstance(listed.value, list) and not is_manifest:
            root = _of_automatosx(root, listed, read, mistakes, notices)
    if isinstance(root.value, list):
        staged = any(isinstance(item.value, list) for item in root.value)
        root = Node({"stages" if staged else "tasks": root}, root.line)
    reader = _Tasks(PROFILES | {*_profiles(root)})
    return _with(
        root,
        Manifest,
        name=_as_text,
        tasks=_each(reader.task),
        stages=_each(reader.stage),
        defaults=_task_members,
        policy=lambda part: _with(
            part, Policy, constraints=lambda inner: _with(inner, Constraints)
        ),
    )


_Members = Mapping[str, Node]
_IGNORED = frozenset({"name", "type", "parallel", "optional", "config"})
"""Keys of a step of AutomatosX that have no meaning here, or are read apart from the others."""
_PROMPTS = ("prompt", "delegate", "agent")
"""Types of steps that an agent performs."""


def _of_automatosx(
    root: Node,
    listed: Node,
    read: Callable[[_Members], dict[str, Node]],
    mistakes: Mistakes,
    notices: list[str],
) -> Node:
    """Convert a file of AutomatosX with `steps` or `actors` to one with `tasks`.

    What has no equivalent is left out, and a notice names it. A step that no agent performs is a
    mistake: its result would be missing.
    """
    members = root.value if isinstance(root.value, dict) else {}
    left_out: dict[str, None] = {}
    tasks: list[Node] = []
    items = listed.value if isinstance(listed.value, list) else []
    has_order = any(_names_others(each) for each in items)
    for number, item in enumerate(items, start=1):
        given = item.value if isinstance(item.value, dict) else {}
        kind = given.get("type")
        if not isinstance(item.value, dict) or (kind and kind.value not in _PROMPTS):
            shown = one_line(str(kind.plain()), limit=40) if kind else "no mapping"
            mistakes.add(
                item,
                f"the step {number} of the file is of the type `{shown}`, which only AutomatosX "
                "itself can run: remove the step, or make it a prompt",
            )
            continue
        task = read(given)
        left_out |= {f"{key}": None for key in given if key not in _IGNORED and key not in _READ}
        if read is _step and tasks and not has_order:
            # Without any dependency in the file, its steps run one after another.
            task["depends_on"] = Node([_plain_id(tasks[-1])], item.line)
        tasks.append(Node(task, item.line))
    metadata = members.get("metadata")
    about = metadata.value if metadata is not None and isinstance(metadata.value, dict) else {}
    name = _first(members, "name", "workflowId") or _first(about, "name", "id")
    kept = {"tasks": Node(tasks, listed.line), **({"name": name} if name else {})}
    kept |= {key: members[key] for key in ("vars", "defaults") if key in members}
    known = {"steps", "actors", "metadata", "workflowId", "name", "version", "description"}
    left_out |= {key: None for key in members if key not in kept and key not in known}
    if left_out:
        shown = ", ".join(f"`{one_line(key, limit=40)}`" for key in left_out)
        notices.append(f"keys of this file of AutomatosX have no effect here: {shown}")
    return Node(kept, root.line)


def _first(members: _Members, *keys: str) -> Node | None:
    """Return the first of the keys that has a value."""
    found = (members[key] for key in keys if key in members)
    return next((node for node in found if node.value not in (None, "")), None)


_BEFORE = ("dependsOn", "depends_on", "dependencies")
_STEP: Mapping[str, tuple[str, ...]] = {
    "id": ("stepId", "key", "id"),
    "task": ("prompt", "task", "description"),
    "agent": ("agentId", "agent"),
    "depends_on": _BEFORE,
    "model": ("model",),
}
"""Keys of a task, each with its names in a step of AutomatosX or in the step's `config`."""
_TIMES = ("timeout", "timeoutMs")
_READ = frozenset({*_TIMES, *(key for keys in _STEP.values() for key in keys)})


def _names_others(step: Node) -> bool:
    return isinstance(step.value, dict) and any(key in step.value for key in _BEFORE)


def _plain_id(task: Node) -> Node:
    return task.value["id"] if isinstance(task.value, dict) and "id" in task.value else Node("", 0)


def _step(given: _Members) -> dict[str, Node]:
    config = given.get("config")
    inner = config.value if config is not None and isinstance(config.value, dict) else {}
    task = {}
    for key, names in _STEP.items():
        found = _first(given, *names) or _first(inner, *names)
        if found is not None:
            task[key] = found
    if "task" not in task and (name := _first(given, "name")):
        task["task"] = name
    time = _first(given, *_TIMES)
    if time is not None and isinstance(time.value, (int, float)):
        task["timeout"] = Node(time.value / 1000, time.line)
    optional = given.get("optional")
    if optional is not None and optional.value is True:
        task["critical"] = Node(value=False, line=optional.line)
    return task


def _actor(given: _Members) -> dict[str, Node]:
    return _step({key: node for key, node in given.items() if key not in _BEFORE})


_Read = Callable[[Node], Node]


def _with(node: Node, model: type[BaseModel], /, **reads: _Read) -> Node:
    """Convert the values of the keys in `reads` of a mapping.

    Keys of `model` without a value are left out; other keys stay, to be reported as unknown.
    """
    if not isinstance(node.value, dict):
        return node
    known = {info.alias or name for name, info in model.model_fields.items()}
    given = {
        key: member
        for key, member in node.value.items()
        if member.value is not None or key not in known
    }
    return Node(
        {key: reads[key](member) if key in reads else member for key, member in given.items()},
        node.line,
    )


def _each(read: _Read) -> _Read:
    def read_all(node: Node) -> Node:
        if not isinstance(node.value, list):
            return node
        return Node([read(item) for item in node.value], node.line)

    return read_all


def _profiles(root: Node) -> Iterator[str]:
    """Yield the profiles that the tasks of a file name with `agent`."""
    members = root.value
    if isinstance(members, dict):
        agent = members.get("agent")
        if agent is not None and isinstance(agent.value, str):
            yield agent.value
        members = [*members.values()]
    for member in members if isinstance(members, list) else ():
        yield from _profiles(member)


class _Tasks:
    def __init__(self, profiles: Collection[str]) -> None:
        self._profiles = profiles

    def task(self, node: Node) -> Node:
        if isinstance(node.value, str):
            shorthand = _SHORTHAND.fullmatch(node.value)
            parts = shorthand.groupdict() if shorthand else {"task": node.value}
            return Node({key: Node(value, node.line) for key, value in parts.items()}, node.line)
        if isinstance(node.value, dict) and len(node.value) == 1:
            ((agent, task),) = node.value.items()
            if isinstance(task.value, str) and agent in self._profiles:
                return Node({"agent": Node(agent, node.line), "task": task}, node.line)
        return _task_members(node)

    def stage(self, node: Node) -> Node:
        if isinstance(node.value, (str, int)):
            return Node({"name": node}, node.line)
        if isinstance(node.value, list):
            node = Node({"tasks": node}, node.line)
        elif isinstance(node.value, dict) and len(node.value) == 1:
            ((name, tasks),) = node.value.items()
            if isinstance(tasks.value, list) and name != "tasks":
                node = Node({"name": Node(name, node.line), "tasks": tasks}, node.line)
        return _with(node, Stage, tasks=_each(self.task))


def _task_members(node: Node) -> Node:
    reads = dict.fromkeys(LISTS, _as_list) | dict.fromkeys(TEXTS, _as_text)
    return _with(
        node, ManifestTask, **reads, foreach=_foreach, limits=lambda part: _with(part, Limits)
    )


def _as_list(node: Node) -> Node:
    node = _as_text(node)
    if isinstance(node.value, list):
        return Node([_as_text(item) for item in node.value], node.line)
    return Node([node], node.line) if isinstance(node.value, str) else node


def _as_text(node: Node) -> Node:
    return node.as_text


def _foreach(node: Node) -> Node:
    if isinstance(node.value, list):
        node = Node({"items": node}, node.line)
    return _with(node, Foreach, glob=_as_list, items=_each(_as_text))


_Schema = dict[str, Any]
_TEXT: _Schema = {"type": "string"}
_TASK: _Schema = {"$ref": "#/$defs/task"}
_TASKS: _Schema = {"type": "array", "items": _TASK}


def json_schema() -> _Schema:
    """Return the JSON Schema of workflow files, with all short forms."""
    whole = publish(whole_schema(Manifest))
    parts = whole["properties"]
    task, stage = parts["tasks"]["items"], parts["stages"]["items"]
    parts["tasks"]["items"] = stage["properties"]["tasks"]["items"] = _TASK
    parts["stages"]["items"] = {"$ref": "#/$defs/stage"}
    parts["defaults"] = _task_schema(parts["defaults"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "orchestrator workflow",
        "anyOf": [_members(whole), _TASKS, {"type": "array", "items": _TASKS}],
        "$defs": {
            "task": {"anyOf": [_task_schema(task), _TEXT, _one_of(_TEXT)]},
            "stage": {"anyOf": [_members(stage), _TASKS, _TEXT, _one_of(_TASKS)]},
        },
    }


def _members(schema: Mapping[str, Any]) -> _Schema:
    """Return the schema of a mapping, changed so that each value may also be null."""
    inner = {name: nullable(part) for name, part in schema["properties"].items()}
    return {**schema, "properties": inner}


def _task_schema(schema: Mapping[str, Any]) -> _Schema:
    """Return the schema of a task in which lists may be a single text, and `foreach` a list."""
    task = _members(schema)
    parts = task["properties"]
    for name in LISTS:
        if name in parts:
            parts[name]["anyOf"].append(_TEXT)
    if "foreach" in parts:
        each = next(kind for kind in kinds(parts["foreach"]) if "properties" in kind)
        glob = nullable(each["properties"]["glob"])
        glob["anyOf"].append(_TEXT)
        each["properties"]["glob"] = glob
        parts["foreach"]["anyOf"].append(each["properties"]["items"]["anyOf"][0])
    return task


def _one_of(value: _Schema) -> _Schema:
    return {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": value}
