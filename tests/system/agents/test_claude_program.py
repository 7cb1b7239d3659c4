"""Tests of Claude Code, the real program."""

import pytest

from tests.support.model_script import ToolCall
from tests.system.agents.agent_suite import AgentSuite, scenario
from tests.system.agents.broker_suite import BrokerSuite

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

SCENARIO = scenario(lambda command: ToolCall(name="Bash", arguments={"command": command}))


class TestClaude(AgentSuite):
    name, model, tells_cost = "claude", "claude-sonnet-4-5", True


@pytest.mark.agents
class TestClaudeThroughTheBroker(BrokerSuite):
    name, model = "claude", "claude-sonnet-4-5"
