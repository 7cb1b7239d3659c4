"""Say what is wrong inside a value that has parts of its own, at the line of that part."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

from orchestrator.sanitize import one_line
from orchestrator.settings.document import Node
from orchestrator.settings.fields import (
    SECRET,
    Setting,
    field_schema,
    in_words,
    inner_schema,
    kinds,
    place,
)


def inner_problem(found: ErrorDetails, setting: Setting, inside: Sequence[str | int]) -> str:
    """Give the whole line: ``orchestrator.yaml:7: `services.db.memory` is `3x`: must be ...``.

    Args:
        found: The mistake.
        setting: What it is in; from a file.
        inside: Where it is, from the setting on.
    """
    steps = _steps(setting, inside)
    name, node, schema = steps[-1]
    where = f"{place(setting.file, node)}: `{name}`"
    match found["type"]:
        case "missing":
            return f"{where} needs `{one_line(str(inside[-1]), limit=60)}`"
        case "extra_forbidden":
            return f"{where} is unknown{_meant(steps)}"
        case "value_error":
            return f"{where}{_shown(found, steps)}: {found['ctx']['error']}"
        case _:
            return f"{where}{_shown(found, steps)}: must be {in_words(schema)}"


def literal(value: object, mistake: str) -> str:
    """Show a value; quotes tell the text "3" from the number where that is what is wrong."""
    if not isinstance(value, str) or mistake.endswith("_type"):
        return one_line(json.dumps(value, ensure_ascii=False), limit=60)
    return one_line(value, limit=60)


_Step = tuple[str, Node, dict[str, Any]]


def _steps(setting: Setting, inside: Sequence[str | int]) -> list[_Step]:
    """Walk from the setting to the part that is meant; what is no key or index is passed over."""
    node = setting.node or Node(setting.value, None)
    steps: list[_Step] = [(setting.name, node, field_schema(setting.field))]
    for part in inside:
        name, node, schema = steps[-1]
        member = _member(node, part)
        if member is not None:
            shown = f"[{part + 1}]" if isinstance(part, int) else f".{part}"
            steps.append((name + shown, member, inner_schema(schema, part) or {}))
    return steps


def _member(node: Node, part: str | int) -> Node | None:
    if isinstance(part, int):
        return node.value[part] if isinstance(node.value, list) else None
    return node.value.get(part) if isinstance(node.value, dict) else None


def _meant(steps: Sequence[_Step]) -> str:
    (parent, _, schema), (name, _, _) = steps[-2:]
    known = [f"{parent}.{key}" for kind in kinds(schema) for key in kind.get("properties", {})]
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    return f", did you mean `{close[0]}`?" if close else ""


def _shown(found: ErrorDetails, steps: Sequence[_Step]) -> str:
    parts = {part for name, _, _ in steps for part in name.split(".")}
    value = steps[-1][1].plain()
    if parts & SECRET or isinstance(value, (dict, list)):
        return ""
    return f" is `{literal(value, found['type'])}`"
