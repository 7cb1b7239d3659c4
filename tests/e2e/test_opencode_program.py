"""OpenCode, the real program."""

import pytest

from tests.e2e.agent_suite import AgentSuite, scenario
from tests.support.model_script import ToolCall

# It tries an address that nobody listens on for a minute, and starts slowly on a busy machine.
pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(500)]

SCENARIO = scenario(
    lambda command: ToolCall(name="bash", arguments={"command": command, "description": "Do it"})
)


class TestOpencode(AgentSuite):
    name, model, tells_cost = "opencode", "gpt-4o", True
    most_memory, patience, deadline, outage = "1g", 30, 300, 300
