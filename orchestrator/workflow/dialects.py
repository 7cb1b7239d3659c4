"""The ways in which a workflow may be written, each turned into the one that the models know.

Works on nodes, so that every part keeps the line it was written on.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches

from orchestrator.settings.document import Node
from orchestrator.workflow.manifest import ManifestTask

_SHORTHAND = re.compile(r"(?P<agent>[A-Za-z][A-Za-z0-9_-]*):(?P<task>(?:[^\W\d_]|[\"'`]).*)", re.S)
"""`backend:Implement it`; neither `note: this`, nor a URL, nor `localhost:80`, nor `std::move`."""
_NAMES = ("depends_on", "dependencies", "reduce", "inputs")
LISTS = (*_NAMES, "resources", "paths", "touches", "setup")
"""Keys of a task whose list of one may be written without brackets."""


def as_manifest(root: Node) -> Node:
    """Turn any dialect into a mapping with `tasks` and `stages`."""
    if isinstance(root.value, list):
        staged = any(isinstance(item.value, list) for item in root.value)
        root = Node({"stages" if staged else "tasks": root}, root.line)
    return _with(
        root, tasks=_each(_task), stages=_each(_stage), defaults=_task_members, policy=_policy
    )


_Read = Callable[[Node], Node]


def _with(node: Node, **reads: _Read) -> Node:
    """Read members of a mapping; one that is null was not given."""
    if not isinstance(node.value, dict):
        return node
    given = {key: member for key, member in node.value.items() if member.value is not None}
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


def _task(node: Node) -> Node:
    if isinstance(node.value, str):
        return _from_text(node.value, node)
    if isinstance(node.value, dict) and len(node.value) == 1:
        ((agent, task),) = node.value.items()
        # `- backend: Implement it`, which YAML takes for a mapping.
        if isinstance(task.value, str) and not _is_key(agent):
            return Node({"agent": Node(agent, node.line), "task": task}, node.line)
    return _task_members(node)


def _is_key(text: str) -> bool:
    return bool(get_close_matches(text, ManifestTask.model_fields, n=1, cutoff=0.7))


def _from_text(text: str, node: Node) -> Node:
    found = _SHORTHAND.fullmatch(text)
    parts = found.groupdict() if found else {"task": text}
    return Node({key: Node(value, node.line) for key, value in parts.items()}, node.line)


def _task_members(node: Node) -> Node:
    reads = dict.fromkeys(LISTS, _as_list)
    return _with(node, **reads, foreach=_foreach, limits=_with)


def _policy(node: Node) -> Node:
    return _with(node, constraints=_with)


def _as_list(node: Node) -> Node:
    return Node([node], node.line) if isinstance(node.value, str) else node


def _foreach(node: Node) -> Node:
    if isinstance(node.value, list):
        return Node({"items": node}, node.line)
    return _with(node, glob=_as_list)


def _stage(node: Node) -> Node:
    if isinstance(node.value, (str, int)):
        return Node({"name": node}, node.line)
    if isinstance(node.value, list):
        node = Node({"tasks": node}, node.line)
    elif isinstance(node.value, dict) and len(node.value) == 1:
        ((name, tasks),) = node.value.items()
        if isinstance(tasks.value, list) and name != "tasks":
            node = Node({"name": Node(name, node.line), "tasks": tasks}, node.line)
    return _with(node, tasks=_each(_task))
