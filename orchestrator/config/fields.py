"""The table of all settings: path in the models, key in files, allowed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from orchestrator.config.node import Node
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.judging import Judging
from orchestrator.config.settings.option import Option
from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import MOST_WORKERS, ParallelConfig, Triggers
from orchestrator.config.settings.values import IS_SIZE

FieldPath = tuple[str, ...]
"""Path of a setting in the models, such as `("workers",)` or `("limits", "cpus")`."""

_PARTS: Mapping[str, type[BaseModel]] = {
    "limits": Limits,
    "isolation": Isolation,
    "triggers": Triggers,
    "project": Project,
    "judge": Judging,
    "cluster": PodSettings,
}
RUN_FIELDS: Mapping[str, FieldPath] = {
    name: (name,)
    for name in ParallelConfig.model_fields
    if name not in _PARTS and name not in ("providers", "closed_stages", "auto_workers")
}
"""Settings in the block `parallel_runs:` of a file, by key."""
_KEYS: Mapping[str, str] = {"copied": "copy"}
"""Keys in files that differ from the field's name, because a field `copy` would hide a method of
pydantic's models.
"""
CONTAINER_FIELDS: Mapping[str, FieldPath] = {
    _KEYS.get(name, name): (part, name)
    for part in ("limits", "isolation")
    for name in _PARTS[part].model_fields
}
"""Settings in the block `container:` of a file, by key."""
TRIGGER_FIELDS: Mapping[str, FieldPath] = {
    name: ("triggers", name) for name in Triggers.model_fields
}
"""Settings in the block `triggers:` of a file, by key."""
JUDGE_FIELDS: Mapping[str, FieldPath] = {name: ("judge", name) for name in Judging.model_fields}
"""Settings in the block `judge:` of a file, by key."""
CLUSTER_FIELDS: Mapping[str, FieldPath] = {
    name: ("cluster", name) for name in PodSettings.model_fields
}
"""Settings in the block `cluster:` of a file, by key."""
PROJECT_FIELDS: Mapping[str, FieldPath] = {
    name.removesuffix("_"): ("project", name) for name in Project.model_fields
}
"""Settings of `Project`, by key; they are at the top level of a file."""
FIELDS: Mapping[str, FieldPath] = {
    **RUN_FIELDS,
    **CONTAINER_FIELDS,
    **TRIGGER_FIELDS,
    **JUDGE_FIELDS,
    **CLUSTER_FIELDS,
    **PROJECT_FIELDS,
}
BLOCKS: Mapping[str, Mapping[str, FieldPath]] = {
    "parallel_runs": RUN_FIELDS,
    "container": CONTAINER_FIELDS,
    "triggers": TRIGGER_FIELDS,
    "judge": JUDGE_FIELDS,
    "cluster": CLUSTER_FIELDS,
}
PROVIDERS: FieldPath = ("providers",)
TOP_FIELDS: Mapping[str, FieldPath] = {
    "providers": PROVIDERS,
    **{name: CONTAINER_FIELDS[name] for name in ("copy", "ports")},
    **PROJECT_FIELDS,
}
"""Settings at the top level of a file, outside of any block, by key."""
CAMEL: Mapping[str, str] = {"rate_limit": "rateLimit", "refill_rate": "refillRate"}
"""Keys of `providers`: in snake case, and in the camel case that `automatosx.config.json` uses."""
AGENT_FIELDS: Mapping[str, FieldPath] = {
    name: FIELDS[name]
    for name in (
        *("model", "agent", "max_steps", "budget_per_worker", "timeout_per_worker"),
        *("image", "api_base", "env"),
    )
}
"""Settings that `agents.NAME` may set for a single agent program, by key."""
SECRET = frozenset({"env", "environment", "variables", "secrets", "api_base", "notify"})
"""Names of settings whose values may be credentials and are never shown."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A value given by the user, with its source."""

    field: FieldPath
    value: object
    kind: Literal["file", "environment", "option"]
    name: str
    """Name at the source: `parallel_runs.workers`, `ORCHESTRATOR_WORKERS` or `--workers`."""
    file: Path | None = None
    node: Node | None = None
    """The parsed value, if the source is a file."""
    program: str | None = None
    """The agent program that the setting applies to; None if it applies to all."""

    @property
    def label(self) -> str:
        """Return the source and name: ``orchestrator.yaml:3: `parallel_runs.workers` ``."""
        if self.kind == "file":
            return f"{self.place}: `{self.name}`"
        what = "environment variable" if self.kind == "environment" else "option"
        return f"{what} `{self.name}`"

    @property
    def place(self) -> str:
        """Return where the setting was given: `FILE:LINE`, or the variable's or option's name."""
        return place(self.file, self.node) if self.kind == "file" else self.name

    @property
    def secret(self) -> bool:
        """Return whether the value must not be shown."""
        return self.field[-1] in SECRET


def place(file: Path | None, node: Node | None) -> str:
    """Return `FILE:LINE`, or `FILE` if the line is unknown."""
    return f"{file}:{node.line}" if node is not None and node.line else str(file)


def model_of(field: FieldPath) -> type[BaseModel]:
    """Return the model that defines a field."""
    return _PARTS[field[0]] if len(field) > 1 else ParallelConfig


def field_info(field: FieldPath) -> FieldInfo:
    """Return the definition of a field."""
    return model_of(field).model_fields[field[-1]]


def option_of(field: FieldPath) -> Option | None:
    """Return the command line option of a field, or None if there is no option for it."""
    found = (item for item in field_info(field).metadata if isinstance(item, Option))
    return next(found, None)


OPTIONS: Mapping[str, Option] = {
    key: option
    for model_fields in (
        *(RUN_FIELDS, CONTAINER_FIELDS, PROJECT_FIELDS, TRIGGER_FIELDS),
        CLUSTER_FIELDS,
    )
    for key, field in model_fields.items()
    if (option := option_of(field)) is not None
}
"""All settings that have a command line option."""


def flag(key: str) -> str:
    """Return the name of a setting's command line option, such as `--workers`."""
    option = OPTIONS.get(key)
    return (option and option.flag) or "--" + key.replace("_", "-")


def is_list(field: FieldPath) -> bool:
    """Return whether a field holds several values, which a text gives as `a,b,c`."""
    return get_origin(field_info(field).annotation) in {tuple, dict}


def is_size(field: FieldPath) -> bool:
    """Return whether a field accepts sizes such as `512m` besides a number of bytes."""
    return IS_SIZE in field_schema(field)


@cache
def whole_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model with all references resolved."""
    schema = model.model_json_schema()
    resolved: dict[str, Any] = _whole(schema, schema.pop("$defs", {}))
    return resolved


def _whole(schema: Any, definitions: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Replace a schema's references by their definitions: each field is documented as a whole."""
    if isinstance(schema, list):
        return [_whole(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = dict(definitions[schema["$ref"].rpartition("/")[2]])
        if "enum" in target:
            target = {key: target[key] for key in ("enum", "type")}
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return {key: _whole(value, definitions) for key, value in schema.items()}


def field_schema(field: FieldPath) -> dict[str, Any]:
    """Return the JSON Schema of one field."""
    schema: dict[str, Any] = whole_schema(model_of(field))["properties"][field[-1]]
    return schema


def is_structured(field: FieldPath) -> bool:
    """Return whether the members or items of a field are objects with fields of their own."""
    schema = field_schema(field)
    parts = (inner_schema(schema, 0), inner_schema(schema, "any"))
    return any(kind.get("type") == "object" for part in parts if part for kind in kinds(part))


def describe_values(field: FieldPath) -> str:
    """Return the allowed values of a field in words: `a whole number from 1 to 10`."""
    schema = field_schema(field)
    if field == RUN_FIELDS["workers"]:
        # The schema has the highest bound that `max_workers` can set; messages show the default.
        number, *rest = schema["anyOf"]
        schema = {**schema, "anyOf": [{**number, "maximum": MOST_WORKERS}, *rest]}
    return in_words(schema)


def kinds(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives of a schema except null, or the schema itself if it has none."""
    options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return [option for option in options if option.get("type") != "null"] or [dict(schema)]


def inner_schema(schema: Mapping[str, Any], part: str | int) -> dict[str, Any] | None:
    """Return the schema of a mapping's member or a list's item; None if there is none."""
    for kind in kinds(schema):
        named = kind.get("properties", {}).get(part)
        found = kind.get("items") if isinstance(part, int) else named or _additional_members(kind)
        if found:
            return dict(found)
    return None


def _additional_members(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = schema.get("additionalProperties")
    return found if isinstance(found, dict) else None


def in_words(schema: Mapping[str, Any]) -> str:
    """Return the values that a schema allows, in words."""
    return " or ".join(dict.fromkeys(_kind_in_words(kind) for kind in kinds(schema)))


def _kind_in_words(schema: Mapping[str, Any]) -> str:
    if IS_SIZE in schema:
        least, most = schema["minimum"], schema["maximum"]
        size = f"{least // 1024**2}m" if least >= 1024**2 else f"{least // 1024}k"
        return f"a size from {size} to {most // 1024**4}t, such as 512m or 4g"
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


def _members_in_words(schema: Mapping[str, Any]) -> str:
    if len(schema.get("properties", ())) > _MOST_NAMES:
        return "of keys to values"
    if "properties" in schema:
        return "with " + ", ".join(f"`{name}`" for name in schema["properties"])
    kind = in_words(_additional_members(schema) or {"type": "string"})
    return f"of names, each with {kind.removeprefix('a ')}"


_MOST_NAMES = 15
"""Maximum number of keys that a message lists; the documentation lists the keys of larger objects.
"""
_WORDS: Mapping[str, str] = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
}


def _range(schema: Mapping[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {_number(schema['minimum'])} to {_number(schema['maximum'])}"
    if "exclusiveMinimum" in schema:
        least, most = schema["exclusiveMinimum"], schema["maximum"]
        return f" above {_number(least)}, at most {_number(most)}"
    return f", at least {_number(schema['minimum'])}" if "minimum" in schema else ""


def _number(value: float) -> str:
    return f"{value:.15g}"
