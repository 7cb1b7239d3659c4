"""Tests of the names that `import orchestrator` promises."""

from dataclasses import is_dataclass
from typing import Any

import pytest
from pydantic import ValidationError

import orchestrator


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_promised_name_can_be_imported(name: str) -> None:
    assert getattr(orchestrator, name) is not None


OPTIONS = {"MergeOptions": {}, "JudgingRules": {"checks": ("make",)}, "Rounds": {}}


def test_every_dataclass_of_options_is_validated() -> None:
    """Classes that a caller fills in; the others are only returned."""
    named = {name: getattr(orchestrator, name) for name in orchestrator.__all__}
    filled_in = {name for name, kind in named.items() if is_dataclass(kind)}
    assert filled_in == {*OPTIONS}
    for name in OPTIONS:
        assert hasattr(named[name], "__pydantic_validator__")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("MergeOptions", {"order": "bogus"}),
        ("MergeOptions", {"form": "bogus"}),
        ("MergeOptions", {"on_conflict": "bogus"}),
        ("MergeOptions", {"tests": "bogus"}),
        ("MergeOptions", {"checks": "make"}),
        ("MergeOptions", {"checks": ("",)}),
        ("MergeOptions", {"checks": ("a\0b",)}),
        ("MergeOptions", {"allowed": ("../x",)}),
        ("MergeOptions", {"checks": ("make",), "dry_run": True}),
        ("MergeOptions", {"checks": ("make",), "on_conflict": "stop"}),
        ("MergeOptions", {"on_conflict": "agent", "form": "rebase"}),
        ("MergeOptions", {"on_conflict": "agent", "dry_run": True}),
        ("MergeOptions", {"ordre": "best"}),
        ("JudgingRules", {"tests": "bogus"}),
        ("JudgingRules", {"must_fix": ("",)}),
        ("JudgingRules", {"lint": "ruff"}),
        ("JudgingRules", {"instruments": ("../x",)}),
        ("Rounds", {"first": 0}),
        ("Rounds", {"until": 0}),
        ("Rounds", {"until": "two"}),
    ],
)
def test_value_that_the_command_line_refuses_is_refused(name: str, wrong: dict[str, Any]) -> None:
    kind = getattr(orchestrator, name)
    assert kind(**OPTIONS[name])
    with pytest.raises((ValidationError, TypeError)):
        kind(**OPTIONS[name] | wrong)
