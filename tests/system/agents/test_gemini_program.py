"""Tests of Gemini CLI, the real program."""

import pytest

from tests.support.model_script import ToolCall
from tests.system.agents.agent_suite import AgentSuite, scenario
from tests.system.agents.broker_suite import BrokerSuite

pytestmark = [
    pytest.mark.agents,
    pytest.mark.docker,
    pytest.mark.e2e,
    pytest.mark.timeout(600, func_only=True),
]

SCENARIO = scenario(
    lambda command: ToolCall(name="run_shell_command", arguments={"command": command})
)


class TestGemini(AgentSuite):
    name, model, tells_cost = "gemini", "gemini-2.5-flash", False


class TestGeminiThroughTheBroker(BrokerSuite):
    name, model = "gemini", "gemini-2.5-flash"
