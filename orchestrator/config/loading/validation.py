"""Describe a validation error inside a structured value, with the line of the invalid part."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.fields import (
    SECRET,
    Setting,
    field_schema,
    in_words,
    inner_schema,
    kinds,
    place,
)
from orchestrator.config.node import Node


@dataclass(frozen=True)
class Part:
    """A value in a file, with its name and JSON Schema; an empty name stands for the whole file."""

    name: str
    node: Node
    schema: dict[str, Any]


def inner_problem(found: ErrorDetails, setting: Setting, inside: Sequence[str | int]) -> str:
    """Return the error line: ``orchestrator.yaml:7: `services.db.memory` is `3x`: must be ...``.

    Args:
        found: The validation error.
        setting: The setting that contains the error; its source is a file.
        inside: Path from the setting to the invalid part.
    """
    node = setting.node or Node(setting.value, None)
    node, line = problem_in(found, Part(setting.name, node, field_schema(setting.field)), inside)
    return f"{place(setting.file, node)}: {line}"


def problem_in(found: ErrorDetails, whole: Part, inside: Sequence[str | int]) -> tuple[Node, str]:
    """Return the invalid node and the description of its problem.

    `inside` is the path from the value `whole` to its invalid part.
    """
    steps = _steps(whole, inside)
    part = steps[-1]
    what = f"`{part.name}`" if part.name else "the file"
    match found["type"]:
        case "missing":
            line = f"{what} needs `{one_line(str(inside[-1]), limit=60)}`"
        case "extra_forbidden":
            line = f"{what} is unknown{_suggestion(steps) or quotes(steps[-2].node)}"
        case "value_error":
            line = f"{what}{_value_text(found, steps)}: {found['ctx']['error']}"
        case _:
            line = f"{what}{_value_text(found, steps)}: must be {in_words(part.schema)}"
            line += quotes(part.node)
    return part.node, line


def literal(value: object, mistake: str) -> str:
    """Return a value as a message shows it: with quotes if text was given for another type."""
    if not isinstance(value, str) or mistake.endswith("_type"):
        return one_line(json.dumps(value, ensure_ascii=False), limit=60)
    return one_line(value, limit=60)


def _steps(whole: Part, inside: Sequence[str | int]) -> list[Part]:
    """Return the values along a path; path elements that are not keys or indexes are skipped."""
    steps = [whole]
    for part in inside:
        at = steps[-1]
        member = _member(at.node, part)
        if member is not None:
            steps.append(Part(_path_of(at.name, part), member, inner_schema(at.schema, part) or {}))
    return steps


def node_at(node: Node | None, inside: Sequence[str | int]) -> Node | None:
    """Return the part of a value at a path, as far as the value has its elements."""
    for part in inside:
        member = None if node is None else _member(node, part)
        node = member or node
    return node


def _path_of(parent: str, part: str | int) -> str:
    if isinstance(part, int):
        return f"{parent}[{part + 1}]"
    return f"{parent}.{part}" if parent else part


def _member(node: Node, part: str | int) -> Node | None:
    if isinstance(part, int):
        return node.value[part] if isinstance(node.value, list) else None
    return node.value.get(part) if isinstance(node.value, dict) else None


def _suggestion(steps: Sequence[Part]) -> str:
    parent, part = steps[-2:]
    known = [key for kind in kinds(parent.schema) for key in kind.get("properties", {})]
    close = get_close_matches(part.name.rpartition(".")[2], known, n=1, cutoff=0.7)
    return f", did you mean `{_path_of(parent.name, close[0])}`?" if close else ""


def quotes(node: Node) -> str:
    """Return advice if a mapping was probably a text with `: `, which needs quotes in YAML."""
    if not isinstance(node.value, dict) or len(node.value) != 1:
        return ""
    ((key, value),) = node.value.items()
    if isinstance(value.value, (dict, list)):
        return ""
    shown = one_line(key, limit=40)
    return f"; to write a text that contains `: `, put quotes around it: `'{shown}: ...'`"


def _value_text(found: ErrorDetails, steps: Sequence[Part]) -> str:
    parts = {name for part in steps for name in part.name.split(".")}
    value = steps[-1].node.plain()
    if parts & SECRET or isinstance(value, (dict, list)):
        return ""
    return f" is `{literal(value, found['type'])}`"
