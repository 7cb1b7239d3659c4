"""Tests of Codex CLI, the real program."""

import pytest

from tests.support.model_script import ToolCall
from tests.system.agents.agent_suite import AgentSuite, scenario
from tests.system.agents.broker_suite import BrokerSuite

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

SCENARIO = scenario(lambda command: ToolCall(name="exec_command", arguments={"cmd": command}))


@pytest.mark.agents
class TestCodex(AgentSuite):
    name, model, tells_cost = "codex", "gpt-5-codex", False


@pytest.mark.agents
class TestCodexThroughTheBroker(BrokerSuite):
    name, model = "codex", "gpt-5-codex"
