"""Generate the JSON Schema of the configuration file from the models."""

from collections.abc import Mapping
from typing import Any

from orchestrator.config.fields import (
    AGENT_FIELDS,
    BLOCKS,
    CAMEL,
    RUN_FIELDS,
    TOP_FIELDS,
    FieldPath,
    field_schema,
)
from orchestrator.config.settings.values import IS_SIZE

_SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*[kmgtKMGT]?[iI]?[bB]?\s*$"

_ABOUT = {
    "parallel_runs": "Settings of a run and its workers.",
    "container": "Limits and isolation of each worker's container.",
    "triggers": "Conditions under which a worker needs attention.",
    "judge": "How commits of workers are judged and tested.",
    "cluster": "Images and nodes of workers in a cluster.",
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file, for editors and other tools."""
    workers = {
        **_property(RUN_FIELDS["workers"]),
        "description": "Another name for `parallel_runs.workers`.",
    }
    enabled = {
        "type": ["boolean", "null"],
        "description": "`false`: one worker at a time; `maxConcurrentAgents` is ignored.",
    }
    execution = {"maxConcurrentAgents": workers, "parallelDelegationEnabled": enabled}
    agents = {
        "description": "Defaults for one agent program; ignored when another program runs.",
        "type": ["object", "null"],
        "additionalProperties": _block(
            "Defaults for the agent program of this name.", AGENT_FIELDS
        ),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "orchestrator.yaml",
        **_object(
            {
                **{name: _block(_ABOUT[name], fields) for name, fields in BLOCKS.items()},
                **{name: _property(field) for name, field in TOP_FIELDS.items()},
                "agents": agents,
                "execution": _object(execution),
            }
        ),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _block(description: str, fields: Mapping[str, FieldPath]) -> dict[str, Any]:
    properties = {name: _property(field) for name, field in fields.items()}
    return {"description": description, **_object(properties)}


def _property(field: FieldPath) -> dict[str, Any]:
    return nullable(publish(field_schema(field)))


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null; null means that a setting is not set."""
    schema = dict(schema)
    about: dict[str, Any] = {
        key: schema.pop(key) for key in ("description", "default") if key in schema
    }
    options = schema.pop("anyOf", None) or [schema]
    return {**about, "anyOf": [*(o for o in options if o != {"type": "null"}), {"type": "null"}]}


def publish(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema for users: without titles and internal marks; a size may also be text."""
    shown = {key: _inside(key, part) for key, part in schema.items() if key != "title"}
    if not shown.pop(IS_SIZE, False):
        return shown
    about: dict[str, Any] = {
        key: shown.pop(key) for key in ("description", "default") if key in shown
    }
    return {**about, "anyOf": [shown, {"type": "string", "pattern": _SIZE_PATTERN}]}


def _inside(key: str, part: Any) -> Any:  # noqa: ANN401
    if key == "properties":
        either = {ours: part[theirs] for ours, theirs in CAMEL.items() if theirs in part}
        return {name: publish(inner) for name, inner in {**part, **either}.items()}
    if isinstance(part, list):
        return [_inside("", item) for item in part]
    return publish(part) if isinstance(part, dict) and key != "default" else part
