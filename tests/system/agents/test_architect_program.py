"""Tests of architect, the real program."""

import json
from pathlib import Path

import pytest

from tests.support.model_script import ToolCall
from tests.support.model_server import ModelServer
from tests.system.agents.agent_suite import BEGIN, GO_ON, TASKS, AgentSuite, scenario
from tests.system.agents.broker_suite import BROKER, BrokerSuite
from tests.system.agents.conftest import PROVIDERS, Orchestrator

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(600, func_only=True)]

SCENARIO = scenario(lambda command: ToolCall(name="run_command", arguments={"command": command}))


class TestArchitect(AgentSuite):
    name, model, tells_cost = "architect", "gpt-4o", True
    continues = "prompt"

    @pytest.mark.agents
    def test_reads_its_own_configuration_file(
        self, orchestrator: Orchestrator, model_server: ModelServer, tmp_path: Path
    ) -> None:
        prompt = "You greet every customer."
        agent = {"system_prompt": prompt, "allowed_tools": ["run_command"]}
        file = tmp_path / "architect.yaml"
        file.write_text(json.dumps({"agents": {"greeter": agent}}))
        options = {"workers": "1", "agent": "greeter", "agent_config": str(file)}
        begun = self.run(orchestrator, model_server.url, self.asked(BEGIN), **options)
        assert self.ends(begun) == ["success `None` 0"], begun.stdout
        first = len(model_server.exchanges)

        again = ("continue", "1", "-m", self.asked(GO_ON), "--json")
        done = orchestrator(*again, ORCHESTRATOR_API_BASE=f"{model_server.url}/v1")

        assert self.ends(done) == ["success `None` 0"], done.stdout + done.stderr
        assert len(model_server.exchanges) > first > 0
        assert all(prompt in exchange.said for exchange in model_server.exchanges)
        file.unlink()
        refused = orchestrator(*again, ORCHESTRATOR_API_BASE=f"{model_server.url}/v1")
        assert refused.returncode == 3
        assert json.loads(refused.stdout)["error"]["key"] == "agent-config.unreadable"


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
