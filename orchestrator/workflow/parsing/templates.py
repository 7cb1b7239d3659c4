"""Fill in the `{{name}}` templates in the texts of tasks."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.config.node import Node

QUOTE = "quote"
FILLED = frozenset(
    {
        *("task", "agent", "model", "image", "paths", "touches", "resources", "setup", "checks"),
        "services",
    }
)
"""Keys of a task in whose texts templates are filled in."""
_USE = re.compile(
    r"(?P<literal>\\)?\{\{[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*"
    r"(?:\|[ \t]*(?P<filter>[A-Za-z_]+)[ \t]*)?\}\}"
)
r"""Pattern of a template. It does not match `{{ user.name }}` of other template languages;
`\{{name}}` is an escape.
"""


@dataclass(frozen=True)
class Use:
    """One template in a text: `{{name}}` or `{{name|filter}}`."""

    name: str
    filter: str | None
    key: str
    """Where the text is in the task, such as `checks[1].run`."""
    node: Node

    def __str__(self) -> str:
        return "{{" + self.name + (f"|{self.filter}" if self.filter else "") + "}}"


def uses(node: Node, key: str) -> Iterator[Use]:
    """Yield the templates in a part of a task.

    Args:
        node: The part of the task.
        key: Path of the part within the task.
    """
    if isinstance(node.value, str):
        for match in _USE.finditer(node.value):
            if not match["literal"]:
                yield Use(match["name"], match["filter"], key, node)
    elif isinstance(node.value, list):
        for number, item in enumerate(node.value, start=1):
            yield from uses(item, f"{key}[{number}]")
    elif isinstance(node.value, dict):
        for name, member in node.value.items():
            yield from uses(member, f"{key}.{name}")


Values = Mapping[str, tuple[str, ...]]
"""Values of templates by name: a text, or several texts that become lines or quoted words."""


def fill(node: Node, values: Values) -> Node:
    """Return a part of a task with its templates filled in, except templates in inserted values."""
    if isinstance(node.value, str):
        return Node(_USE.sub(lambda match: _value(match, values), node.value), node.line)
    if isinstance(node.value, list):
        return Node([fill(item, values) for item in node.value], node.line)
    if isinstance(node.value, dict):
        return Node({name: fill(part, values) for name, part in node.value.items()}, node.line)
    return node


def fill_task(node: Node, values: Values) -> Node:
    """Return a task with its templates filled in, in those keys where templates are allowed."""
    if not isinstance(node.value, dict):
        return node
    return Node(
        {key: fill(part, values) if key in FILLED else part for key, part in node.value.items()},
        node.line,
    )


def has_results(text: str) -> bool:
    """Return whether a text contains the template `{{results}}`."""
    return any(match["name"] == "results" and not match["literal"] for match in _USE.finditer(text))


def place(name: str) -> re.Pattern[str]:
    """Return a pattern that matches `{{NAME}}` in a text, for a name that gets its value later."""
    return re.compile(rf"\{{\{{[ \t]*{name}[ \t]*\}}\}}")


def left_open(text: str, values: Values, name: str) -> tuple[int, ...]:
    """Return which matches of `place` in the filled-in text are templates, counted from 0.

    The other matches come from values whose text only looks like a template. `values` has none for
    `name`, whose value is not known yet.
    """
    filled, end, templates = "", 0, set[int]()
    for match in _USE.finditer(text):
        filled += text[end : match.start()]
        if match["name"] == name and not match["literal"]:
            templates.add(len(filled))
        filled += _value(match, values)
        end = match.end()
    filled += text[end:]
    places = enumerate(place(name).finditer(filled))
    return tuple(number for number, match in places if match.start() in templates)


def _value(match: re.Match[str], values: Values) -> str:
    if match["literal"]:
        return match[0][1:]
    if match["name"] not in values:
        return match[0]
    texts = values[match["name"]]
    return shlex.join(texts) if match["filter"] == QUOTE else "\n".join(texts)
