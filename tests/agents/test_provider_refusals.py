"""Tests of refusals by providers, and of which programs support a token limit."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentProgress, AgentSettings
from orchestrator.agents.settings_check import check_supported
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.run import ParallelConfig
from tests.support.agents import json_text, judge_text
from tests.support.errors import raises

LONG = "Rate limit reached for gpt-4o in organization org-0123456789 on tokens per min (TPM): " * 3
SAID = f"litellm.RateLimitError: RateLimitError: {LONG}. Please try again in 1.5s."
REPORT = {"is_error": True, "subtype": "success", "num_turns": 1}


OUTPUTS = {
    "architect": json_text({"status": "failed", "stop_reason": "llm_error", "steps": 0,
                        "output": f"Unrecoverable LLM error: {SAID}"}),
    "claude": json_text({**REPORT, "api_error_status": 429, "result": f"API Error: {SAID}"}),
    "codex": json_text({"type": "turn.failed", "error": {
        "message": f"last status: 429 Too Many Requests: {SAID}"}}),
    "opencode": json_text({"type": "error", "error": {
        "name": "APIError", "data": {"statusCode": 429, "message": SAID}}}),
    "mini": json_text({"mini_version": "2.4.6", "exit_status": "RateLimitError", "said": SAID}),
    "aider": f"{SAID}\n",
    "shell": json_text({"status": "failed", "reason": "rate_limited", "retry_after": 1.5}),
}  # fmt: skip


@pytest.mark.parametrize("agent", OUTPUTS)
def test_reset_time_is_read_from_a_cut_message(tmp_path: Path, agent: str) -> None:
    got = judge_text(agent, tmp_path, OUTPUTS[agent], exit_code=1)
    assert (got.status, got.reason) == (Status.FAILED, Reason.RATE_LIMITED)
    assert got.retry_after == 1.5


def test_reset_time_of_gemini_is_read_from_its_result(tmp_path: Path) -> None:
    error = {"message": "[API Error: You exceeded your quota. Please retry in 36.5s.]"}
    said = json_text({"type": "result", "status": "error", "error": error, "stats": {}})
    got = judge_text("gemini", tmp_path, said, exit_code=429 % 256)
    assert (got.reason, got.retry_after) == (Reason.RATE_LIMITED, 36.5)


@pytest.mark.parametrize(
    "said",
    [
        "You've hit your session limit \u00b7 resets 3pm (UTC)",
        "You've hit your limit \u00b7 resets 3pm (UTC)",
        "You've hit your weekly limit \u00b7 resets 3pm (UTC)",
        "5-hour limit reached \u2219 resets 3pm",
    ],
)
def test_subscription_limit_is_a_rate_limit(tmp_path: Path, said: str) -> None:
    got = judge_text("claude", tmp_path, json_text({**REPORT, "result": said}), exit_code=1)
    assert got.reason is Reason.RATE_LIMITED
    assert got.retry_after is not None
    assert 0 <= got.retry_after <= 86_400


def test_reset_event_of_claude_overrides_its_text(tmp_path: Path) -> None:
    def event(status: str, seconds: int) -> dict[str, Any]:
        info = {"status": status, "resetsAt": int(time.time()) + seconds}
        return {"type": "rate_limit_event", "rate_limit_info": info}

    report = {**REPORT, "result": "You've hit your session limit \u00b7 resets 3pm (UTC)"}
    said = json_text(event("allowed", 9000), event("rejected", 500), report)
    got = judge_text("claude", tmp_path, said, exit_code=1)
    assert got.retry_after is not None
    assert 490 < got.retry_after < 501
    # A request that was accepted later makes the earlier refusal irrelevant.
    fine = json_text(event("rejected", 500), event("allowed", 9000), {**REPORT, "is_error": False})
    assert judge_text("claude", tmp_path, fine, exit_code=0).retry_after is None


def test_tokens_of_claude_count_once_per_answer() -> None:
    def answer(name: str, tokens: int, **rest: object) -> str:
        usage = {"input_tokens": tokens, "cache_read_input_tokens": 5, "output_tokens": 1}
        return json.dumps({"type": "assistant", "message": {"id": name, "usage": usage}, **rest})

    read = load_agent("claude").progress_reader()
    assert read(answer("a", 10)) == AgentProgress(steps=1, tokens=16)
    assert read(answer("a", 10)) is None
    # Tokens of a subagent count, but its answers are not steps.
    assert read(answer("b", 20, parent_tool_use_id="t")) == AgentProgress(steps=1, tokens=42)
    assert read(answer("c", 30)) == AgentProgress(steps=2, tokens=78)


@pytest.mark.parametrize("agent", ["architect", "codex", "gemini", "mini"])
@pytest.mark.parametrize("name", ["tokens_per_worker", "tokens_total"])
def test_unsupported_token_limit_is_refused(agent: str, name: str) -> None:
    config = ParallelConfig(tasks=("t",), agent_cli=agent, **{name: 1000})
    option = f"--{name.replace('_', '-')}"
    with raises("agent.option-unsupported", f"`{agent}`", f"`{option}`"):
        check_supported(config, load_agent(agent))


@pytest.mark.parametrize("agent", ["codex", "gemini"])
def test_unsupported_total_is_refused_by_its_option_name(agent: str) -> None:
    config = ParallelConfig(tasks=("t",), agent_cli=agent, budget_total=1.0)
    with raises("agent.option-unsupported", f"`{agent}`", "`--budget-total`"):
        check_supported(config, load_agent(agent))


@pytest.mark.parametrize("agent", ["claude", "opencode", "aider", "shell"])
def test_token_limits_are_supported_by_other_programs(agent: str) -> None:
    asked = {"tokens_per_worker": 10, "tokens_total": 20, "budget_total": 1.0}
    config = ParallelConfig(tasks=("t",), agent_cli=agent, **asked)
    assert load_agent(agent).unsupported(AgentSettings.of(config)) is None
