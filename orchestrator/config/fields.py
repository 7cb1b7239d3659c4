"""Which settings there are, where each lives in the models, and what values each may have."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from orchestrator.config.container import Isolation, Limits
from orchestrator.config.document import Node
from orchestrator.config.project import Project
from orchestrator.config.run import MOST_WORKERS, ParallelConfig, Triggers
from orchestrator.config.values import IS_SIZE

FieldPath = tuple[str, ...]
"""`("workers",)` or `("limits", "cpus")`."""

_PARTS: Mapping[str, type[BaseModel]] = {
    "limits": Limits,
    "isolation": Isolation,
    "triggers": Triggers,
    "project": Project,
}
RUN_FIELDS: Mapping[str, FieldPath] = {
    name: (name,)
    for name in ParallelConfig.model_fields
    if name not in _PARTS and name not in ("providers", "closed_stages", "auto_workers")
}
"""Keys of the block `parallel_runs:`."""
_KEYS: Mapping[str, str] = {"copied": "copy"}
"""A field named `copy` would hide a method."""
CONTAINER_FIELDS: Mapping[str, FieldPath] = {
    _KEYS.get(name, name): (part, name)
    for part in ("limits", "isolation")
    for name in _PARTS[part].model_fields
}
"""Keys of the block `container:`."""
TRIGGER_FIELDS: Mapping[str, FieldPath] = {
    name: ("triggers", name) for name in Triggers.model_fields
}
"""Keys of the block `triggers:`."""
PROJECT_FIELDS: Mapping[str, FieldPath] = {
    name.removesuffix("_"): ("project", name) for name in Project.model_fields
}
"""Keys at the top of the file, beside the blocks; a field named `copy` would hide a method."""
FIELDS: Mapping[str, FieldPath] = {
    **RUN_FIELDS,
    **CONTAINER_FIELDS,
    **TRIGGER_FIELDS,
    **PROJECT_FIELDS,
}
BLOCKS: Mapping[str, Mapping[str, FieldPath]] = {
    "parallel_runs": RUN_FIELDS,
    "container": CONTAINER_FIELDS,
    "triggers": TRIGGER_FIELDS,
}
PROVIDERS: FieldPath = ("providers",)
TOP_FIELDS: Mapping[str, FieldPath] = {
    "providers": PROVIDERS,
    **{name: CONTAINER_FIELDS[name] for name in ("copy", "ports")},
    **PROJECT_FIELDS,
}
"""Keys of the file that are in no block."""
CAMEL: Mapping[str, str] = {"rate_limit": "rateLimit", "refill_rate": "refillRate"}
"""Keys in `providers` as we write them elsewhere, and as `automatosx.config.json` has them."""
AGENT_FIELDS: Mapping[str, FieldPath] = {
    name: FIELDS[name]
    for name in (
        *("model", "agent", "max_steps", "budget_per_worker", "timeout_per_worker"),
        *("image", "api_base", "env"),
    )
}
"""Keys of `agents.NAME`: defaults for one agent program."""
SECRET = frozenset({"env", "environment", "variables", "secrets", "api_base", "notify"})
"""Names of what may hold a credential, wherever they stand: never shown."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value that somebody gave."""

    field: FieldPath
    value: object
    kind: Literal["file", "environment", "option"]
    name: str
    """What it is called there: `parallel_runs.workers`, `ORCHESTRATOR_WORKERS`, `--workers`."""
    file: Path | None = None
    node: Node | None = None
    """What stands in the file."""
    program: str | None = None
    """The agent program that it is for, alone."""

    @property
    def label(self) -> str:
        """Return where it came from: ``orchestrator.yaml:3: `parallel_runs.workers` ``."""
        if self.kind == "file":
            return f"{self.place}: `{self.name}`"
        what = "environment variable" if self.kind == "environment" else "option"
        return f"{what} `{self.name}`"

    @property
    def place(self) -> str:
        """Return `FILE:LINE`, or the variable's or option's name."""
        return place(self.file, self.node) if self.kind == "file" else self.name

    @property
    def secret(self) -> bool:
        """Return whether the value must not be shown."""
        return self.field[-1] in SECRET


def place(file: Path | None, node: Node | None) -> str:
    """Return `FILE:LINE`, as far as the line is known."""
    return f"{file}:{node.line}" if node is not None and node.line else str(file)


def model_of(field: FieldPath) -> type[BaseModel]:
    """Return the model that a field is part of."""
    return _PARTS[field[0]] if len(field) > 1 else ParallelConfig


def is_size(field: FieldPath) -> bool:
    """Return whether a field takes `512m` beside a number of bytes."""
    return IS_SIZE in field_schema(field)


@cache
def whole_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model in one piece, without references."""
    schema = model.model_json_schema()
    found: dict[str, Any] = _whole(schema, schema.pop("$defs", {}))
    return found


def _whole(schema: Any, definitions: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Put definitions in the place of what refers to them: fields are shown one by one."""
    if isinstance(schema, list):
        return [_whole(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = dict(definitions[schema["$ref"].rpartition("/")[2]])
        if "enum" in found:
            found = {key: found[key] for key in ("enum", "type")}
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    return {key: _whole(value, definitions) for key, value in schema.items()}


def field_schema(field: FieldPath) -> dict[str, Any]:
    """Return the JSON Schema of one field."""
    found: dict[str, Any] = whole_schema(model_of(field))["properties"][field[-1]]
    return found


def is_structured(field: FieldPath) -> bool:
    """Return whether a field's members or items have parts of their own."""
    schema = field_schema(field)
    parts = (inner_schema(schema, 0), inner_schema(schema, "any"))
    return any(kind.get("type") == "object" for part in parts if part for kind in kinds(part))


def allowed(field: FieldPath) -> str:
    """Say in words what a field takes: `a whole number from 1 to 10`."""
    schema = field_schema(field)
    if field == RUN_FIELDS["workers"]:
        # The schema, for editors, has the bound that `max_workers` may raise it to.
        number, *rest = schema["anyOf"]
        schema = {**schema, "anyOf": [{**number, "maximum": MOST_WORKERS}, *rest]}
    return in_words(schema)


def kinds(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List what a schema allows, null aside: itself, or its alternatives."""
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return [option for option in options if option.get("type") != "null"] or [dict(schema)]


def inner_schema(schema: Mapping[str, Any], part: str | int) -> dict[str, Any] | None:
    """Return the schema of a member of a mapping or of an item of a list, if it has one."""
    for kind in kinds(schema):
        named = kind.get("properties", {}).get(part)
        found = kind.get("items") if isinstance(part, int) else named or _of_any_name(kind)
        if found:
            return dict(found)
    return None


def _of_any_name(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else None


def in_words(schema: Mapping[str, Any]) -> str:
    """Return what a schema takes."""
    return " or ".join(dict.fromkeys(_one_in_words(kind) for kind in kinds(schema)))


def _one_in_words(schema: Mapping[str, Any]) -> str:
    if IS_SIZE in schema:
        return _size_in_words(schema.get("minimum", 0))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{item}`" for item in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return "a list, each item " + in_words(schema["items"])
        case "string":
            return "text that is not empty" if schema.get("minLength") else "text"
        case "object":
            return "a mapping " + _members_in_words(schema)
        case kind:
            return _WORDS[str(kind)] + _range(schema)


def _size_in_words(least: int) -> str:
    size = f"{least // 1024**2}m" if least >= 1024**2 else f"{least // 1024}k"
    return f"a size of at least {size}, such as 512m or 4g"


def _members_in_words(schema: Mapping[str, Any]) -> str:
    if len(schema.get("properties", ())) > _MOST_NAMES:
        return "of keys to values"
    if "properties" in schema:
        return "with " + ", ".join(f"`{name}`" for name in schema["properties"])
    kind = in_words(_of_any_name(schema) or {"type": "string"})
    return f"of names, each with {kind.removeprefix('a ')}"


_MOST_NAMES = 15
"""Keys that are listed; of more, the reference has a table."""
_WORDS: Mapping[str, str] = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
}


def _range(schema: Mapping[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {schema['minimum']} to {schema['maximum']}"
    if "minimum" in schema:
        return f", at least {_number(schema['minimum'])}"
    return f" above {_number(schema['exclusiveMinimum'])}" if "exclusiveMinimum" in schema else ""


def _number(value: float) -> str:
    return f"{value:g}"
