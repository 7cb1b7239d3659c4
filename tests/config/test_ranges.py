"""Every number among the settings has a range, and its limits are what the engine enforces."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from orchestrator.base.text.quantities import size
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.judging import Judging
from orchestrator.config.settings.project import Check, Project, Service
from orchestrator.config.settings.run import ParallelConfig, RateLimit, Triggers
from orchestrator.config.settings.values import parse_size
from orchestrator.config.workflow.model import AtOneTime, Task, WorkerSettings, Workflow
from orchestrator.config.workflow.parsing.manifest import Constraints, ManifestTask

MODELS: tuple[type[BaseModel], ...] = (
    Limits, Isolation, Triggers, RateLimit, ParallelConfig, Project, Service, Check, Judging,
    AtOneTime, Task, Workflow, WorkerSettings, ManifestTask, Constraints,
)  # fmt: skip
MOST_WORKERS = 10
"""Largest number of workers, unless `max_workers` is set."""


def numbers() -> Iterator[Any]:
    """Yield each number among the settings: its model, its name, and the schema of its values.

    The name of a stage may be a number too.
    """
    for model in MODELS:
        schema = TypeAdapter(model).json_schema(by_alias=False)["properties"]
        for name in model.model_fields.keys() & schema.keys():
            for kind in (schema[name], *schema[name].get("anyOf", ())):
                if kind.get("type") in ("integer", "number") and name != "stage":
                    yield pytest.param(model, name, kind, id=f"{model.__name__}-{name}")


NUMBERS = sorted(numbers(), key=lambda row: str(row.id))


def is_accepted(model: type[BaseModel], name: str, value: float) -> bool:
    """Return whether a model accepts a value of a field; others may be missing."""
    alias = model.model_fields[name].alias or name
    try:
        model.model_validate({alias: value})
    except ValidationError as error:
        return not any(alias in one["loc"] and one["type"] != "missing" for one in error.errors())
    return True


@pytest.mark.parametrize(("model", "name", "kind"), NUMBERS)
def test_limits_of_a_number_are_accepted_and_what_is_beyond_is_refused(
    model: type[BaseModel], name: str, kind: dict[str, Any]
) -> None:
    whole = kind["type"] == "integer"
    most = MOST_WORKERS if name == "workers" else kind["maximum"]
    assert is_accepted(model, name, most)
    assert not is_accepted(model, name, most + 1 if whole else most * 1.001)
    if "exclusiveMinimum" in kind:
        least = kind["exclusiveMinimum"]
        assert not is_accepted(model, name, least)
        assert is_accepted(model, name, least + 1e-9)
    else:
        least = kind["minimum"]
        assert is_accepted(model, name, least)
        assert not is_accepted(model, name, least - 1 if whole else least - 1e-9)
    for absurd in (float("inf"), float("-inf"), float("nan"), 10**400):
        assert not is_accepted(model, name, absurd)


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        # The kernel enforces no smaller share, and has no larger process id.
        (Limits, "cpus", 0.0000001), (Limits, "cpus", 0.001), (Service, "cpus", 0.001),
        (Limits, "pids", 99_999_999_999_999), (Service, "pids", 4_194_305),
        (Limits, "open_files", 1_048_577), (Limits, "memory", "1m"), (Service, "memory", "1m"),
        (Limits, "log_limit", "99999999999t"), (Limits, "disk", "99999999999t"),
        # A clock cannot wait for so long.
        (Limits, "grace", 1e300), (Check, "timeout", 1e300), (RateLimit, "refill_rate", 1e-300),
    ],
)  # fmt: skip
def test_value_that_the_engine_or_the_kernel_does_not_enforce_is_refused(
    model: type[BaseModel], name: str, value: Any
) -> None:
    assert not is_accepted(model, name, value)


def test_a_setting_of_every_kind_is_in_the_table() -> None:
    names = {str(row.id) for row in NUMBERS}
    assert {
        "Limits-cpus",
        "Service-pids",
        "WorkerSettings-retries",
        "RateLimit-refill_rate",
    } <= names
    assert len(names) == len(NUMBERS) > 30


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("64k", 65_536), ("1.5GiB", 1_610_612_736), ("1024t", 2**50), ("0.1", 0),
        # A floating-point number would be rounded.
        ("9007199254740993", 9_007_199_254_740_993),
    ],
)  # fmt: skip
def test_size_is_exact(text: str, octets: int) -> None:
    assert parse_size(text) == octets


@pytest.mark.parametrize("text", ["9" * 400, "1e9", "-1", "", "1p", "٣m", "1.m"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a size must be a number with a unit"):
        parse_size(text)


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (65_536, "64 KiB"), (1_610_612_736, "1.5 GiB"),
     (2**50, "1,024 TiB")],
)  # fmt: skip
def test_size_is_shown_in_the_unit_that_shows_it(octets: int, text: str) -> None:
    assert size(octets) == text
