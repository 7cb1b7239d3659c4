"""Tests of settings that are derived from other settings."""

from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from orchestrator.config.derived import IsolationChanges, RunChanges, for_checks
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig


@pytest.mark.parametrize(
    ("changes", "model"), [(RunChanges, ParallelConfig), (IsolationChanges, Isolation)]
)
def test_a_change_has_the_type_of_its_setting(
    changes: type[Mapping[str, Any]], model: type
) -> None:
    types = get_type_hints(model)
    assert {name: types[name] for name in changes.__annotations__} == get_type_hints(changes)


def test_commands_get_no_file_of_the_agent_program() -> None:
    config = ParallelConfig(tasks=("t",), agent_config="/home/ann/agent.yaml")
    assert for_checks(config, ("make test",)).agent_config is None
