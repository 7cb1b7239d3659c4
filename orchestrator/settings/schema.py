"""The JSON Schema of the configuration file, made from the models."""

from collections.abc import Mapping
from typing import Any

from orchestrator.settings.fields import (
    CONTAINER_FIELDS,
    RUN_FIELDS,
    TRIGGER_FIELDS,
    FieldPath,
    field_schema,
    is_size,
)

_SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*[kmgtKMGT]?[iI]?[bB]?\s*$"


def json_schema() -> dict[str, Any]:
    """Describe the configuration file to editors and other tools."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "orchestrator.yaml",
        **_object(
            {
                "parallel_runs": _block("What a run does.", RUN_FIELDS),
                "container": _block("What each worker's container may do.", CONTAINER_FIELDS),
                "triggers": _block("When somebody should look at a worker.", TRIGGER_FIELDS),
                "execution": _execution(),
            }
        ),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _block(description: str, fields: Mapping[str, FieldPath]) -> dict[str, Any]:
    properties = {name: _property(field) for name, field in fields.items()}
    return {"description": description, **_object(properties)}


def _execution() -> dict[str, Any]:
    workers = {
        **_property(RUN_FIELDS["workers"]),
        "description": "Same as `parallel_runs.workers`.",
    }
    enabled = {"enum": [True, None], "description": "Accepted when `true`."}
    return _object({"maxConcurrentAgents": workers, "parallelDelegationEnabled": enabled})


def _property(field: FieldPath) -> dict[str, Any]:
    schema = {key: value for key, value in field_schema(field).items() if key != "title"}
    about: dict[str, Any] = {
        key: schema.pop(key) for key in ("description", "default") if key in schema
    }
    options = schema.pop("anyOf", None) or _options(field, schema)
    return {**about, "anyOf": [*(o for o in options if o != {"type": "null"}), {"type": "null"}]}


def _options(field: FieldPath, schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [schema, {"type": "string", "pattern": _SIZE_PATTERN}] if is_size(field) else [schema]
