"""Generate the JSON Schema of workflow files, including the short forms."""

from collections.abc import Mapping
from typing import Any

from orchestrator.config.fields import kinds, whole_schema
from orchestrator.config.json_schema import nullable, publish
from orchestrator.workflow.parsing.dialects import LISTS
from orchestrator.workflow.parsing.manifest import Manifest

_Schema = dict[str, Any]
_TEXT: _Schema = {"type": "string"}
_TASK: _Schema = {"$ref": "#/$defs/task"}
_TASKS: _Schema = {"type": "array", "items": _TASK}


def json_schema() -> _Schema:
    """Return the JSON Schema of workflow files, with all short forms."""
    whole = publish(whole_schema(Manifest))
    parts = whole["properties"]
    task, stage = parts["tasks"]["items"], parts["stages"]["items"]
    parts["tasks"]["items"] = stage["properties"]["tasks"]["items"] = _TASK
    parts["stages"]["items"] = {"$ref": "#/$defs/stage"}
    parts["defaults"] = _task(parts["defaults"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "orchestrator workflow",
        "anyOf": [_members(whole), _TASKS, {"type": "array", "items": _TASKS}],
        "$defs": {
            "task": {"anyOf": [_task(task), _TEXT, _one_of(_TEXT)]},
            "stage": {"anyOf": [_members(stage), _TASKS, _TEXT, _one_of(_TASKS)]},
        },
    }


def _members(schema: Mapping[str, Any]) -> _Schema:
    """Return the schema of a mapping, changed so that each value may also be null."""
    inner = {name: nullable(part) for name, part in schema["properties"].items()}
    return {**schema, "properties": inner}


def _task(schema: Mapping[str, Any]) -> _Schema:
    """Return the schema of a task in which lists may be a single text, and `foreach` a list."""
    task = _members(schema)
    parts = task["properties"]
    for name in LISTS:
        if name in parts:
            parts[name]["anyOf"].append(_TEXT)
    if "foreach" in parts:
        each = next(kind for kind in kinds(parts["foreach"]) if "properties" in kind)
        glob = nullable(each["properties"]["glob"])
        glob["anyOf"].append(_TEXT)
        each["properties"]["glob"] = glob
        parts["foreach"]["anyOf"].append(each["properties"]["items"]["anyOf"][0])
    return task


def _one_of(value: _Schema) -> _Schema:
    return {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": value}
