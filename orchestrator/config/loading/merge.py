"""Validate the settings of each source, and merge them into one configuration."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.fields import (
    CONTAINER_FIELDS,
    PROJECT_FIELDS,
    FieldPath,
    Setting,
    describe_values,
    is_structured,
    place,
)
from orchestrator.config.loading.validation import inner_problem, literal, node_at, quotes
from orchestrator.config.settings.run import ParallelConfig

Values = dict[str, object]
Validate = Callable[[Values], ParallelConfig]
_ENV = CONTAINER_FIELDS["env"]
_SECRETS = CONTAINER_FIELDS["secrets"]
_SERVICES = PROJECT_FIELDS["services"]


def validate_texts(values: Values) -> ParallelConfig:
    """Validate options and variables, whose values are all text."""
    return ParallelConfig.model_validate(values)


def validate_typed(values: Values) -> ParallelConfig:
    """Validate a file's values, whose types matter: `3` is not `"3"`."""
    # Strict validation of Python objects would require tuples; a file can only hold lists.
    return ParallelConfig.model_validate_json(json.dumps(values), strict=True)


def problems_of(settings: Sequence[Setting], validate: Validate) -> list[str]:
    """Return the problems of one source's settings, regardless of other sources."""
    try:
        validate(_nest(settings))
    except ValidationError as error:
        by_field = {setting.field: setting for setting in settings}
        return [line for mistake in error.errors() for line in _problem_lines(mistake, by_field)]
    return []


def problems_of_file(settings: Sequence[Setting]) -> list[str]:
    """Return the problems of all settings of a file, also of those for one agent program."""
    problems = []
    for program in dict.fromkeys((None, *(setting.program for setting in settings))):
        own = [setting for setting in settings if setting.program == program]
        problems += twice(own) + problems_of(own, validate_typed)
    return problems


def merge(layers: Iterable[Sequence[Setting]]) -> ParallelConfig:
    """Merge valid settings from several sources, given in increasing precedence.

    Raises:
        ValidationError: Two settings contradict each other.
    """
    merged: dict[FieldPath, Setting] = {}
    for setting in (setting for layer in layers for setting in layer):
        before = merged.get(setting.field)
        merged[setting.field] = _merge_pair(before, setting) if before else setting
    return ParallelConfig.model_validate(_nest(list(merged.values())))


def _merge_pair(weaker: Setting, stronger: Setting) -> Setting:
    """Return the setting of higher precedence; variables, secrets and services are merged."""
    below, above = weaker.value, stronger.value
    if stronger.field == _ENV and isinstance(below, dict) and isinstance(above, dict):
        return replace(stronger, value={**below, **above})
    if stronger.field == _SECRETS and isinstance(below, list) and isinstance(above, tuple):
        by_name = {str(entry).partition("=")[0]: entry for entry in (*below, *above)}
        return replace(stronger, value=tuple(by_name.values()))
    if stronger.field == _SERVICES and isinstance(below, dict) and isinstance(above, dict):
        named = {name: {**below.get(name, {}), **service} for name, service in above.items()}
        return replace(stronger, value={**below, **named})
    return stronger


def twice(settings: Sequence[Setting]) -> list[str]:
    """Return a problem for each setting that one file sets under two different keys."""
    first: dict[FieldPath, Setting] = {}
    return [
        f"{setting.label} was already set by {first[setting.field].label}"
        for setting in settings
        if first.setdefault(setting.field, setting) is not setting
    ]


def _nest(settings: Sequence[Setting]) -> Values:
    values: Values = {}
    for setting in settings:
        *parts, name = setting.field
        place = values
        for part in parts:
            inner = place.setdefault(part, {})
            place = inner if isinstance(inner, dict) else {}
        place[name] = setting.value
    return values


def _problem_lines(found: ErrorDetails, settings: Mapping[FieldPath, Setting]) -> list[str]:
    location = tuple(str(part) for part in found["loc"])
    setting = settings.get(location[:2]) or settings.get(location[:1])
    if setting is None:
        # A missing task, or a contradiction between settings: reported once for all layers.
        return []
    inside = found["loc"][len(setting.field) :]
    if setting.node is not None and inside and is_structured(setting.field):
        return [one_line(inner_problem(found, setting, inside), limit=400)]
    text = f"{setting.label}{_value_text(found, setting)}{_expectation(found, setting)}"
    part = node_at(setting.node, inside)
    if part is not None and (advice := quotes(part)):
        text = (
            f"{place(setting.file, part)}: `{setting.name}`{_expectation(found, setting)}{advice}"
        )
    return [one_line(text, limit=400)]


def _value_text(found: ErrorDetails, setting: Setting) -> str:
    inside = found["loc"][len(setting.field) :]
    if setting.field == _ENV:
        return f", variable `{inside[0]}`" if inside else ""
    # For the whole value show what the user wrote: `8m`, not the bytes it was parsed to.
    value = found["input"] if inside else setting.value
    if setting.secret or isinstance(value, (dict, list, tuple)):
        return ""
    return f" {'contains' if inside else 'is'} `{literal(value, found['type'])}`"


def _expectation(found: ErrorDetails, setting: Setting) -> str:
    if found["type"] == "value_error":
        return f": {found['ctx']['error']}"
    if setting.field == _ENV and len(found["loc"]) > len(_ENV):
        return ": must be text; quote values that look like numbers"
    return f": must be {describe_values(setting.field)}"
