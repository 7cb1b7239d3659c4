"""List every setting of a run with its value and its source; secret values are hidden."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.config.fields import (
    BLOCKS,
    PROJECT_FIELDS,
    PROVIDERS,
    RUN_FIELDS,
    SECRET,
    FieldPath,
    is_size,
)
from orchestrator.config.loading.loading import Settings
from orchestrator.config.settings.presets import PRESETS

HIDDEN = "[not shown]"
_NAMES_ONLY = "secrets"
"""Key of the setting that contains names of variables, not values, and may thus be shown."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """One setting with its value and source, for `orchestrator config show`."""

    key: str
    """Path of the setting in a configuration file: `container.memory`."""
    value: Any
    """Value as in JSON."""
    in_bytes: bool = False
    source: Literal["file", "environment", "option", "preset", "default"]
    places: tuple[str, ...] = ()
    """Sources of the value: `FILE:LINE`, a variable or a preset; several if values are merged."""


def describe(settings: Settings) -> Iterator[Described]:
    """Yield every setting, in the order of the documentation."""
    values = settings.config.model_dump(mode="json")
    for key, field in _keys_and_fields():
        given = settings.settings_of(field)
        value: Any = values
        for name in field:
            value = value[name]
        if field == RUN_FIELDS["tasks"] and not given:
            value = []
        parts = PRESETS[settings.config.preset] if settings.config.preset else {}
        part = field[0] if len(field) > 1 else "run"
        preset = (str(settings.config.preset),) if field[-1] in parts.get(part, {}) else ()
        adding_up = given if isinstance(value, dict) else given[-1:]
        yield Described(
            key=key,
            value=_redact(field[-1], value),
            in_bytes=is_size(field),
            source=given[-1].kind if given else "preset" if preset else "default",
            places=tuple(setting.place for setting in adding_up) or preset,
        )


def _keys_and_fields() -> Iterator[tuple[str, FieldPath]]:
    for block, fields in BLOCKS.items():
        for name, field in fields.items():
            yield f"{block}.{name}", field
    yield "providers", PROVIDERS
    yield from PROJECT_FIELDS.items()


def _redact(name: str, value: Any) -> Any:  # noqa: ANN401
    """Return a value with credentials replaced by `HIDDEN`; names of variables are kept."""
    if isinstance(value, list):
        return [_redact(name, item) for item in value]
    if isinstance(value, dict):
        return {key: _redact(name if name in SECRET else key, item) for key, item in value.items()}
    return HIDDEN if name in SECRET - {_NAMES_ONLY} and value is not None else value
