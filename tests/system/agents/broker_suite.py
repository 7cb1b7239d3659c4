"""Tests that every agent program must pass whose key is in the run's credential broker."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.model_server import ModelServer
from tests.system.agents.agent_suite import TASKS, TaskSuite
from tests.system.agents.conftest import Orchestrator, caller_environment

BROKER = ("--keys", "broker", "--network", "none")
BASES = (
    ("OPENAI_BASE_URL", "/v1"),
    ("ANTHROPIC_BASE_URL", ""),
    ("GOOGLE_GEMINI_BASE_URL", ""),
    ("DEEPSEEK_API_BASE", ""),
)
"""Variables with the base URL of a provider, and the version at its end."""
CALLS = {
    "gpt": ("key-of-openai", r"/v1/(chat/completions|responses)"),
    "claude": ("key-of-anthropic", r"/v1/messages"),
    "gemini": ("key-of-gemini", r"/v1beta/models/[^/]+:(streamG|g)enerateContent"),
    "deepseek": ("key-of-deepseek", r"/chat/completions"),
}
"""The key and the path of the calls to a model, by the first word of its name."""


class BrokerSuite(TaskSuite):
    """The common tasks of a program, without a network and without a key in the worker."""

    # The broker measures what the program does not report.
    tells_cost, counts_all = True, True
    models: ClassVar[tuple[str, ...]] = ()
    """A model of each provider that the program can use. Default: the model of the other tests."""

    @pytest.fixture(autouse=True)
    def broker(self, broker_image: str) -> str:
        """The image of the broker."""
        return broker_image

    @pytest.fixture
    def variables(self, tmp_path: Path, model_server: ModelServer) -> Mapping[str, str]:
        """The environment of a caller with the key and the base URL of every provider."""
        bases = {name: f"{model_server.url}{version}" for name, version in BASES}
        known = caller_environment(tmp_path, model_server.url)
        return {**known, **bases, "GEMINI_API_KEY": "key-of-gemini"}

    def run(
        self, orchestrator: Orchestrator, base: str, *tasks: str, **options: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one worker for each task, through the broker."""

        def through_the_broker(*arguments: str) -> subprocess.CompletedProcess[str]:
            return orchestrator(*arguments, *BROKER)

        return super().run(through_the_broker, base, *tasks, **options)

    def test_untrusted_tasks_call_each_provider_with_its_key(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        models = self.models or (self.model,)
        tasks = [word for _ in models for word in ("--task", self.asked(TASKS[0]))]
        names = [word for name, _ in BASES for word in ("--env", name)]
        # The preset has no network but the broker's.
        done = orchestrator(
            "parallel", "--agent-cli", self.name, "--preset", "untrusted", *names, *tasks,
            "--models", ",".join(models), "--workers", "2", "--json",
        )  # fmt: skip

        assert done.stdout, done.stderr
        for result in json.loads(done.stdout)["results"]:
            assert (result["status"], result["reason"]) == ("success", None), result
            assert (result["cost_known"], result["cost"] > 0) == (True, True)
        for model in models:
            plain = model.rpartition("/")[2]
            key, path = CALLS[plain.partition("-")[0]]
            calls = [one for one in model_server.exchanges if one.plain_model == plain]
            assert {one.key for one in calls} == {key}
            assert all(re.fullmatch(path, one.path.partition("?")[0]) for one in calls), calls
