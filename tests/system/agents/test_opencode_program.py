"""Tests of OpenCode, the real program."""

import pytest

from tests.support.model_script import ToolCall
from tests.system.agents.agent_suite import AgentSuite, scenario
from tests.system.agents.broker_suite import BrokerSuite

# opencode retries an unreachable address for a minute, and starts slowly on a busy machine.
pytestmark = [
    pytest.mark.agents,
    pytest.mark.docker,
    pytest.mark.e2e,
    pytest.mark.timeout(500, func_only=True),
]


def _bash(command: str) -> ToolCall:
    # opencode may miss the end of a command killed for memory, and waits for this timeout.
    arguments = {"command": command, "description": "Do it", "timeout": 30_000}
    return ToolCall(name="bash", arguments=arguments)


SCENARIO = scenario(_bash)


class TestOpencode(AgentSuite):
    name, model, tells_cost = "opencode", "gpt-4o", True
    most_memory, patience, deadline, outage = "1g", 60, 300, 300


class TestOpencodeThroughTheBroker(BrokerSuite):
    name, model = "opencode", "gpt-4o"
    models = ("gpt-4o", "claude-sonnet-4-5", "gemini-2.5-flash", "deepseek-chat")
