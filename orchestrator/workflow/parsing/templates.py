"""`{{name}}` in the texts of tasks: what is used, and what it becomes."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.config.document import Node

QUOTE = "quote"
FILLED = frozenset(
    {
        *("task", "agent", "model", "image", "paths", "touches", "resources", "setup", "checks"),
        "services",
    }
)
"""Keys of a task whose texts may hold templates."""
_USE = re.compile(
    r"(?P<literal>\\)?\{\{[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*"
    r"(?:\|[ \t]*(?P<filter>[A-Za-z_]+)[ \t]*)?\}\}"
)
"""Other languages' `{{ user.name }}` is none of ours, and `\\{{name}}` stands for `{{name}}`."""


@dataclass(frozen=True)
class Use:
    """One `{{name}}` or `{{name|filter}}`."""

    name: str
    filter: str | None
    key: str
    """Where it is, from the task on: `checks[1].run`."""
    node: Node

    def __str__(self) -> str:
        return "{{" + self.name + (f"|{self.filter}" if self.filter else "") + "}}"


def uses(node: Node, key: str) -> Iterator[Use]:
    """List the templates in a part of a task.

    Args:
        node: The part.
        key: What it is called.
    """
    if isinstance(node.value, str):
        for found in _USE.finditer(node.value):
            if not found["literal"]:
                yield Use(found["name"], found["filter"], key, node)
    elif isinstance(node.value, list):
        for number, item in enumerate(node.value, start=1):
            yield from uses(item, f"{key}[{number}]")
    elif isinstance(node.value, dict):
        for name, member in node.value.items():
            yield from uses(member, f"{key}.{name}")


Values = Mapping[str, tuple[str, ...]]
"""What names stand for: one text, or many, which become a line each, or words for a shell."""


def fill(node: Node, values: Values) -> Node:
    """Put values in the place of their names, once: what they hold is not looked at again."""
    if isinstance(node.value, str):
        return Node(_filled(node.value, values), node.line)
    if isinstance(node.value, list):
        return Node([fill(item, values) for item in node.value], node.line)
    if isinstance(node.value, dict):
        return Node({name: fill(part, values) for name, part in node.value.items()}, node.line)
    return node


def fill_task(node: Node, values: Values) -> Node:
    """Put values into those texts of a task that may hold templates."""
    if not isinstance(node.value, dict):
        return node
    return Node(
        {key: fill(part, values) if key in FILLED else part for key, part in node.value.items()},
        node.line,
    )


def holds(text: str, name: str) -> bool:
    """Return whether a text has a template of that name in it."""
    return any(found["name"] == name and not found["literal"] for found in _USE.finditer(text))


def place(name: str) -> re.Pattern[str]:
    """Return what finds the places of a name that has no value yet."""
    return re.compile(rf"\{{\{{[ \t]*{name}[ \t]*\}}\}}")


def left_open(text: str, values: Values, name: str) -> tuple[int, ...]:
    """Tell the templates of a name from text that only looks like one.

    Args:
        text: As it was written.
        values: What is put into it; `name` is not among them.
        name: A name whose value is known later.

    Returns:
        Which of the places that `place` finds in the filled text are templates, counted from 0.
    """
    filled, end, templates = "", 0, set[int]()
    for found in _USE.finditer(text):
        filled += text[end : found.start()]
        if found["name"] == name and not found["literal"]:
            templates.add(len(filled))
        filled += _value(found, values)
        end = found.end()
    filled += text[end:]
    places = enumerate(place(name).finditer(filled))
    return tuple(number for number, one in places if one.start() in templates)


def _filled(text: str, values: Values) -> str:
    return _USE.sub(lambda found: _value(found, values), text)


def _value(found: re.Match[str], values: Values) -> str:
    if found["literal"]:
        return found[0][1:]
    if found["name"] not in values:
        return found[0]
    texts = values[found["name"]]
    return shlex.join(texts) if found["filter"] == QUOTE else "\n".join(texts)
