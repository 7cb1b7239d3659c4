"""Tests of the opencode adapter alone; `test_adapters.py` has those of all adapters."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import AgentCommand, AgentOutcome, AgentProgress
from orchestrator.agents.programs.opencode import OpencodeAgent
from orchestrator.base.results import Reason, Status
from tests.support.agents import command, json_text, judge_text

SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED


def outcome_of_events(
    tmp_path: Path, exit_code: int, *events: dict[str, Any], stderr: str = ""
) -> AgentOutcome:
    said = json_text(*events)
    return judge_text("opencode", tmp_path, said, stderr=stderr, exit_code=exit_code)


def step(reason: str = "stop", cost: object = 0.01) -> dict[str, Any]:
    part = {"reason": reason, "cost": cost, "tokens": {"total": 10}}
    return {"type": "step_finish", "part": part}


def error(name: str, **data: object) -> dict[str, Any]:
    return {"type": "error", "error": {"name": name, "data": data}}


def config_of(given: AgentCommand) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(given.env["OPENCODE_CONFIG_CONTENT"])
    return config


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (error("APIError", statusCode=403, message="m"), Reason.AUTH),
        (error("APIError", statusCode=429, message="m"), Reason.RATE_LIMITED),
        (error("APIError", statusCode=500, message="m"), Reason.AGENT_ERROR),
        (error("ProviderAuthError", message="m"), Reason.AUTH),
        (error("UnknownError", message="Anthropic API key is missing. Pass it"), Reason.AUTH),
        (error("ContextOverflowError", message="m"), Reason.CONTEXT_FULL),
        ({"type": "error", "error": "what?"}, Reason.AGENT_ERROR),
    ],
)
def test_failures_are_classified(tmp_path: Path, failure: dict[str, Any], reason: Reason) -> None:
    got = outcome_of_events(tmp_path, 1, step("tool-calls"), failure)
    assert (got.status, got.reason, got.steps) == (FAILED, reason, 1)


@pytest.mark.parametrize(
    ("ended", "exit_code", "status", "reason"),
    [
        ("stop", 0, SUCCESS, None),
        ("stop", 1, FAILED, Reason.AGENT_ERROR),
        ("length", 0, PARTIAL, Reason.AGENT_FAILED),
        ("tool-calls", 0, PARTIAL, Reason.AGENT_FAILED),
    ],
)
def test_last_step_determines_the_outcome(
    tmp_path: Path, ended: str, exit_code: int, status: Status, reason: Reason | None
) -> None:
    got = outcome_of_events(tmp_path, exit_code, step("tool-calls"), step(ended))
    assert (got.status, got.reason) == (status, reason)


def test_other_profile_than_requested_is_a_failure(tmp_path: Path) -> None:
    warning = '! agent "nosuch" not found. Falling back to default agent\n'
    got = outcome_of_events(tmp_path, 0, step(), stderr=warning)
    assert (got.status, got.reason) == (FAILED, Reason.AGENT_ERROR)
    assert got.message == 'agent "nosuch" not found. Falling back to default agent'


def test_costs_of_steps_are_summed_while_the_program_runs() -> None:
    """A step that ends with tool calls starts the next: a limit stops the worker before that."""
    read = OpencodeAgent().progress_reader()
    assert read(json.dumps(step("tool-calls"))) == AgentProgress(steps=2, cost=0.01, tokens=10)
    assert read(json.dumps({"type": "text", "part": {"text": "x"}})) is None
    assert read(json.dumps(step("stop"))) == AgentProgress(steps=2, cost=0.02, tokens=20)


@pytest.mark.parametrize("cost", [0, None, -1, "much", float("1e300")])
def test_a_model_without_a_price_has_no_known_cost(tmp_path: Path, cost: object) -> None:
    got = outcome_of_events(tmp_path, 0, step(cost=cost))
    assert (got.status, got.cost, got.tokens) == (SUCCESS, None, 10)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (None, "anthropic/claude-sonnet-4-5"),
        ("claude-opus-4-5", "anthropic/claude-opus-4-5"),
        ("gpt-4o", "openai/gpt-4o"),
        ("gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("openrouter/claude-opus-4-5", "openrouter/claude-opus-4-5"),
    ],
)
def test_model_name_without_provider_gets_one(asked: str | None, given: str) -> None:
    assert command("opencode", model=asked).argv[-2:] == ("--model", given)


def test_task_is_passed_on_stdin(tmp_path: Path) -> None:
    given = command("opencode", '--help "me"', "gpt-4o", agent="plan")
    start = given.argv.index("opencode")
    argv = (*given.argv[:start], "sh", "-c", 'cat; echo ":$ANTHROPIC_BASE_URL"')
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for base, seen in (("http://gw/", "http://gw/v1"), ("http://gw/v1", "http://gw/v1")):
        done = subprocess.run(
            argv,
            env={**environment, "ANTHROPIC_BASE_URL": base},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f'--help "me":{seen}\n'
    options = given.argv[start:]
    assert options[options.index("--agent") + 1] == "plan"


@pytest.mark.parametrize(
    ("model", "base", "seen"),
    [
        ("gpt-4o", "http://gw/v1", "http://gw/v1"),
        ("claude-x", "http://gw", "http://gw/v1"),
        ("claude-x", "http://gw/v1/", "http://gw/v1"),
        ("mine/llama", "http://gw/v1", "http://gw/v1"),
    ],
)
def test_base_url_is_set_for_the_models_provider(model: str, base: str, seen: str) -> None:
    given = command("opencode", model=model, api_base=base)
    provider, name = given.argv[-1].split("/")
    entry = config_of(given)["provider"][provider]
    assert entry["options"]["baseURL"] == seen
    assert entry["options"]["apiKey"].startswith("{env:")
    assert entry["models"] == {name: {}}


def test_subagents_are_disabled_with_a_budget() -> None:
    assert config_of(command("opencode", budget_per_worker=1))["permission"] == {"task": "deny"}
    assert "permission" not in config_of(command("opencode"))
