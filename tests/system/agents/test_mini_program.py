"""Tests of mini-swe-agent, the real program."""

import pytest

from tests.support.model_script import ToolCall, Turn
from tests.system.agents.agent_suite import AgentSuite, scenario
from tests.system.agents.broker_suite import BrokerSuite

pytestmark = [pytest.mark.agents, pytest.mark.docker, pytest.mark.e2e]


def _run(command: str) -> ToolCall:
    return ToolCall(name="bash", arguments={"command": command})


SUBMIT = Turn(calls=(_run("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),))
SCENARIO = scenario(_run, SUBMIT)


class TestMini(AgentSuite):
    name, model, tells_cost = "mini", "gpt-4o", True
    continues = "prompt"
    patience, deadline, outage = 30, 300, 300


class TestMiniThroughTheBroker(BrokerSuite):
    name, model = "mini", "gpt-4o"
    continues = "prompt"
    models = ("gpt-4o", "claude-sonnet-4-5", "gemini/gemini-2.5-flash", "deepseek-chat")
