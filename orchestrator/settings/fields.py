"""Which settings there are, where each lives in the models, and what values each may have."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, BeforeValidator

from orchestrator.config import Isolation, Limits, ParallelConfig, Triggers, parse_size

FieldPath = tuple[str, ...]
"""`("workers",)` or `("limits", "cpus")`."""

_PARTS: Mapping[str, type[BaseModel]] = {
    "limits": Limits,
    "isolation": Isolation,
    "triggers": Triggers,
}
RUN_FIELDS: Mapping[str, FieldPath] = {
    name: (name,) for name in ParallelConfig.model_fields if name not in _PARTS
}
"""Keys of the block `parallel_runs:`."""
CONTAINER_FIELDS: Mapping[str, FieldPath] = {
    name: (part, name) for part in ("limits", "isolation") for name in _PARTS[part].model_fields
}
"""Keys of the block `container:`."""
TRIGGER_FIELDS: Mapping[str, FieldPath] = {
    name: ("triggers", name) for name in Triggers.model_fields
}
"""Keys of the block `triggers:`."""
FIELDS: Mapping[str, FieldPath] = {**RUN_FIELDS, **CONTAINER_FIELDS, **TRIGGER_FIELDS}
SECRET = frozenset({"env", "secrets", "api_base", "notify"})
"""Settings whose values may hold a credential: never shown."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value that somebody gave."""

    field: FieldPath
    value: object
    label: str
    """Where it came from, for people: ``orchestrator.yaml:3: `parallel_runs.workers` ``."""

    @property
    def secret(self) -> bool:
        """Say whether the value must not be shown."""
        return self.field[-1] in SECRET


def model_of(field: FieldPath) -> type[BaseModel]:
    """Give the model that a field is part of."""
    return _PARTS[field[0]] if len(field) > 1 else ParallelConfig


def is_size(field: FieldPath) -> bool:
    """Say whether a field takes `512m` beside a number of bytes."""
    metadata = model_of(field).model_fields[field[-1]].metadata
    return any(isinstance(item, BeforeValidator) and item.func is parse_size for item in metadata)


@cache
def _properties(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    schema = model.model_json_schema()
    definitions = schema.get("$defs", {})
    return {name: _whole(found, definitions) for name, found in schema["properties"].items()}


def _whole(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Put what items are of in its place: the parts are shown one by one."""
    name = schema.get("items", {}).get("$ref", "").rpartition("/")[2]
    if not name:
        return schema
    items = {key: definitions[name][key] for key in ("enum", "type")}
    return {**schema, "items": items}


def field_schema(field: FieldPath) -> dict[str, Any]:
    """Give the JSON Schema of one field."""
    return _properties(model_of(field))[field[-1]]


def allowed(field: FieldPath) -> str:
    """Say in words what a field takes: `a whole number from 1 to 10`."""
    schema = _not_null(field_schema(field))
    if is_size(field):
        least = schema["minimum"]
        size = f"{least // 1024**2}m" if least >= 1024**2 else f"{least // 1024}k"
        return f"a size of at least {size}, such as 512m or 4g"
    return _in_words(schema)


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    return options[0] if options else schema


def _in_words(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(f"`{item}`" for item in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return "a list, each item " + _in_words(schema["items"])
    if kind == "string":
        return "text that is not empty" if schema.get("minLength") else "text"
    return _WORDS[str(kind)] + _range(schema)


_WORDS: Mapping[str, str] = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "object": "a mapping of names to texts",
}


def _range(schema: dict[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {schema['minimum']} to {schema['maximum']}"
    if "minimum" in schema:
        return f", at least {_number(schema['minimum'])}"
    return f" above {_number(schema['exclusiveMinimum'])}" if "exclusiveMinimum" in schema else ""


def _number(value: float) -> str:
    return f"{value:g}"
