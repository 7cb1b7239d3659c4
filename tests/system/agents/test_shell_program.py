"""Tests of plain commands with the tasks of the agent programs."""

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.images.names import BASE_IMAGE
from tests.support.model_script import Scenario
from tests.support.model_server import ModelServer
from tests.system.agents.agent_suite import Task, TaskSuite, published

pytestmark = [pytest.mark.docker, pytest.mark.e2e]

SCENARIO = Scenario(())


class TestShell(TaskSuite):
    name, model, tells_cost = "shell", "none", True
    continues = "command"

    @pytest.fixture(autouse=True)
    def image(self) -> str:
        """The base image, from which every agent's image is built."""
        return BASE_IMAGE

    def asked(self, task: Task) -> str:
        told = '{"type": "orchestrator.report", "steps": 1, "cost": 0.01, "tokens": 9}'
        return f"{task.command} && echo '{told}'"

    def check_requests(
        self, model_server: ModelServer, first: int, turns: Sequence[Mapping[str, Any]]
    ) -> None:
        assert (model_server.exchanges, first) == ([], 0)
        assert [turn["tokens"] for turn in turns] == [9, 9]


def _ours() -> list[str]:
    offered = entry_points(group="orchestrator.agents")
    return sorted({point.name for point in offered if point.value.startswith("orchestrator.")})


@pytest.mark.parametrize("agent", _ours())
def test_every_program_has_the_common_tests(agent: str) -> None:
    module = Path(__file__).with_name(f"test_{agent}_program.py")
    assert "Suite)" in module.read_text()
    assert agent == "shell" or "max steps" in published(agent)
