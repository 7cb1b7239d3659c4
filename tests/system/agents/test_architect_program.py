"""Tests of architect, the real program."""

import pytest

from tests.support.model_script import ToolCall
from tests.system.agents.agent_suite import AgentSuite, scenario

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

SCENARIO = scenario(lambda command: ToolCall(name="run_command", arguments={"command": command}))


class TestArchitect(AgentSuite):
    name, model, tells_cost = "architect", "gpt-4o", True
