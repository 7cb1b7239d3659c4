"""Convert every supported way to write a workflow to a single form.

The conversion works on parsed nodes, so that every part keeps its line number.
"""

import re
from collections.abc import Callable

from orchestrator.config.node import Node
from orchestrator.workflow.parsing.manifest import ManifestTask

_SHORTHAND = re.compile(r"(?P<agent>[a-z][A-Za-z0-9_-]*):(?P<task>(?:[^\W\d_]|[\"'`]).*)", re.S)
"""Pattern of a task with a profile, as `backend:Implement it`. It does not match `note: this`,
URLs, `localhost:80`, `std::move` or `TODO:fix it`. A profile that starts with a capital letter must
be given with `agent`.
"""
TEXTS = ("id", "name", "task", "agent", "agent_cli", "model", "image")
"""Keys of a task whose values are text, so that `010` and `1.10` are not changed as numbers would
be.
"""
_NAMES = ("depends_on", "dependencies", "reduce", "inputs")
LISTS = (*_NAMES, "resources", "paths", "touches", "setup")
"""Keys of a task whose values are lists; a list with a single item may be written without brackets.
"""


def as_manifest(root: Node) -> Node:
    """Convert a workflow in any supported form to a mapping with `tasks` and `stages`."""
    if isinstance(root.value, list):
        staged = any(isinstance(item.value, list) for item in root.value)
        root = Node({"stages" if staged else "tasks": root}, root.line)
    return _with(
        root,
        name=_as_text,
        tasks=_each(_task),
        stages=_each(_stage),
        defaults=_task_members,
        policy=_policy,
    )


_Read = Callable[[Node], Node]


def _with(node: Node, **reads: _Read) -> Node:
    """Convert the values of the keys in `reads` of a mapping; leave out keys without a value."""
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
    """Return whether text is a key of a task, possibly misspelt, and not a profile's name."""
    return any(_is_typo_of(text, key) for key in ManifestTask.model_fields)


def _is_typo_of(text: str, key: str) -> bool:
    """Return whether text is a key with at most one typing error."""
    begin = next((at for at, pair in enumerate(zip(text, key, strict=False)) if pair[0] != pair[1]),
                 min(len(text), len(key)))  # fmt: skip
    rest, wanted = text[begin:], key[begin:]
    swapped = wanted[1:2] + wanted[:1] + wanted[2:]
    return rest in (wanted, wanted[1:], swapped) or rest[1:] in (wanted, wanted[1:])


def _from_text(text: str, node: Node) -> Node:
    shorthand = _SHORTHAND.fullmatch(text)
    parts = shorthand.groupdict() if shorthand else {"task": text}
    return Node({key: Node(value, node.line) for key, value in parts.items()}, node.line)


def _task_members(node: Node) -> Node:
    reads = dict.fromkeys(LISTS, _as_list) | dict.fromkeys(TEXTS, _as_text)
    return _with(node, **reads, foreach=_foreach, limits=_with)


def _policy(node: Node) -> Node:
    return _with(node, constraints=_with)


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
    return _with(node, glob=_as_list, items=_each(_as_text))


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
