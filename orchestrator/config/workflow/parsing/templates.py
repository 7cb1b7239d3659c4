"""Fill in the `{{name}}` templates in the texts of tasks."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
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
    r"(?P<literal>\\)?\{\{[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?P<path>(?:\.[A-Za-z0-9_-]+)*)"
    r"[ \t]*(?:\|[ \t]*(?P<filter>[A-Za-z_]+)[ \t]*)?\}\}"
)
r"""Pattern of a template, or of one of another language; `\{{name}}` is an escape."""
_HEADS = ("item", "items", "index", "results", "vars", "env")
"""Names with parts, as in `{{item.title}}`, that are templates; `{{ user.name }}` is none."""


def _is_ours(match: re.Match[str]) -> bool:
    """Return whether a match is a template, and not text such as `{{ a.b }}` or `${{ env.A }}`."""
    if not match["path"] and "-" not in match["name"]:
        return True
    return match["name"] in _HEADS and match.string[: match.start()][-1:] != "$"


def _name_of(match: re.Match[str]) -> tuple[str, tuple[str, ...]]:
    """Return the name of a template, and the parts behind it; `{{vars.a}}` is `{{a}}`."""
    name, path = match["name"], tuple(match["path"].split(".")[1:])
    return (path[0], ()) if name == "vars" and len(path) == 1 else (name, path)


@dataclass(frozen=True)
class Use:
    """One template in a text: `{{name}}` or `{{name|filter}}`."""

    name: str
    filter: str | None
    key: str
    """Where the text is in the task, such as `checks[1].run`."""
    node: Node
    path: tuple[str, ...] = ()
    """Parts of the value, as in `{{item.title}}`."""
    is_ours: bool = True
    """Whether it is a template, and not text of another language."""
    written: str = ""
    """The template as the file has it."""

    def __str__(self) -> str:
        return self.written


def uses(node: Node, key: str) -> Iterator[Use]:
    """Yield the templates in a part of a task.

    Args:
        node: The part of the task.
        key: Path of the part within the task.
    """
    if isinstance(node.value, str):
        for match in _USE.finditer(node.value):
            if not match["literal"]:
                name, path = _name_of(match)
                yield Use(name, match["filter"], key, node, path, _is_ours(match), match[0])
    elif isinstance(node.value, list):
        for number, item in enumerate(node.value, start=1):
            yield from uses(item, f"{key}[{number}]")
    elif isinstance(node.value, dict):
        for name, member in node.value.items():
            yield from uses(member, f"{key}.{name}")


Values = Mapping[str, tuple[str, ...]]
"""Values of templates by name: a text, or several texts that become lines or quoted words."""


def fill(node: Node, values: Values) -> Node:
    """Return a part of a task with its templates filled in, except templates in inserted values.

    Raises:
        ConfigError: An item has no part of the name that a template asks for.
    """
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
    return any(
        match["name"] == "results" and not match["path"] and not match["literal"]
        for match in _USE.finditer(text)
    )


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
        if match["name"] == name and not match["path"] and not match["literal"]:
            templates.add(len(filled))
        filled += _value(match, values)
        end = match.end()
    filled += text[end:]
    places = enumerate(place(name).finditer(filled))
    return tuple(number for number, match in places if match.start() in templates)


def _value(match: re.Match[str], values: Values) -> str:
    name, path = _name_of(match)
    if not _is_ours(match):
        return match[0]
    if match["literal"]:
        return match[0][1:]
    if name not in values:
        return match[0]
    texts = (_part(values[name][0], path, match[0]),) if path else values[name]
    return shlex.join(texts) if match["filter"] == QUOTE else "\n".join(texts)


def _part(item: str, path: tuple[str, ...], written: str) -> str:
    """Return a part of an item that is a JSON object."""
    try:
        found = json.loads(item, parse_float=str, parse_int=str)
        for part in path:
            found = found[int(part) if isinstance(found, list) else part]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"`{written}` has no value: the item `{one_line(item, limit=60)}` has no such part",
            key="foreach.item-part",
        ) from error
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
