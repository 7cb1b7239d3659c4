"""Tests of architect, the real program."""

import json

import pytest

from tests.support.model_script import ToolCall
from tests.support.model_server import ModelServer
from tests.system.agents.agent_suite import TASKS, AgentSuite, scenario
from tests.system.agents.broker_suite import BROKER, BrokerSuite
from tests.system.agents.conftest import PROVIDERS, Orchestrator

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

SCENARIO = scenario(lambda command: ToolCall(name="run_command", arguments={"command": command}))


class TestArchitect(AgentSuite):
    name, model, tells_cost = "architect", "gpt-4o", True
    continues = "prompt"


@pytest.mark.agents
class TestArchitectThroughTheBroker(BrokerSuite):
    name, model = "architect", "gpt-4o"
    continues = "prompt"
    models = ("gpt-4o", "claude-sonnet-4-5", "gemini/gemini-2.5-flash", "deepseek-chat")

    def test_finds_the_broker_without_a_base_url(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        program = ("--agent-cli", self.name, "--models", self.model, "--workers", "1")
        task = self.asked(TASKS[0])
        done = orchestrator("parallel", *program, *BROKER, "--json", task)
        assert done.returncode == 0, done.stdout + done.stderr
        (result,) = json.loads(done.stdout)["results"]
        assert result["files_modified"] == list(TASKS[0].files)
        assert (result["cost_known"], result["cost"] > 0, result["tokens"] > 0) == (True,) * 3
        # The model's server gets the real key, and no token.
        keys = {exchange.key for exchange in model_server.exchanges}
        assert keys <= {f"key-of-{provider.lower()}" for provider in PROVIDERS}
        assert len(keys) == 1
