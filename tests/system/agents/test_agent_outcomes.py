"""Tests of the results of the agent architect: its own limits, and errors of the model's API."""

import json

import pytest

from tests.support.model_script import Rule, Scenario, ToolCall, Turn
from tests.system.agents.conftest import Orchestrator

pytestmark = [pytest.mark.agents, pytest.mark.docker, pytest.mark.e2e]

APPEND = ToolCall(name="run_command", arguments={"command": "echo again >> log.txt"})
LONG = "All of it at once. " * 2000
SCENARIO = Scenario(
    (
        Rule(task="no key", turns=(Turn(status=401, text="Incorrect API key provided"),)),
        Rule(task="too fast", turns=(Turn(status=429, text="Rate limit reached"),)),
        Rule(task="spend", turns=(Turn(text=LONG, calls=(APPEND,)),)),
        Rule(task="never end", turns=(Turn(calls=(APPEND,)),)),
    )
)


def test_each_outcome_has_its_status_and_reason(orchestrator: Orchestrator) -> None:
    tasks = ("no key", "too fast", "spend", "never end")
    options = [option for task in tasks for option in ("--task", task)]
    limits = ("--max-steps", "2", "--budget-per-worker", "0.05", "--rate-limit-wait", "0")

    done = orchestrator("parallel", *options, *limits, "--workers", "2", "--json")

    results = json.loads(done.stdout)["results"]
    ends = {result["task"]: (result["status"], result["reason"]) for result in results}
    assert ends == {
        "no key": ("failed", "auth"),
        "too fast": ("failed", "rate_limited"),
        "spend": ("partial", "budget"),
        "never end": ("partial", "max_steps"),
    }
    assert done.returncode == 1
    assert [result["files_modified"] for result in results] == [[], [], [], ["log.txt"]]


def test_failed_authentication_has_its_exit_code(orchestrator: Orchestrator) -> None:
    done = orchestrator("parallel", "no key", "--workers", "1", "--quiet")

    assert done.returncode == 4
    assert "auth" in done.stdout


def test_spent_budget_has_its_exit_code(orchestrator: Orchestrator) -> None:
    done = orchestrator(
        "parallel", "spend", "--workers", "1", "--quiet", "--budget-per-worker", "0.05"
    )

    assert done.returncode == 6
    assert "budget" in done.stdout
