"""Tests of the gemini adapter alone; `test_adapters.py` has those of all adapters."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import AgentOutcome
from orchestrator.agents.programs.gemini import GeminiAgent
from orchestrator.base.results import Reason, Status
from tests.support.agents import command, json_text, judge_text

SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED


def outcome_of_events(tmp_path: Path, exit_code: int, *events: dict[str, Any]) -> AgentOutcome:
    return judge_text("gemini", tmp_path, json_text(*events), exit_code=exit_code)


def outcome_of_stderr(tmp_path: Path, exit_code: int, said: str) -> AgentOutcome:
    return judge_text("gemini", tmp_path, "", stderr=said, exit_code=exit_code)


def result(status: str, message: str | None = None) -> dict[str, Any]:
    error = {} if message is None else {"error": {"type": "unknown", "message": message}}
    return {"type": "result", "status": status, **error, "stats": {"total_tokens": 7}}


@pytest.mark.parametrize(
    ("exit_code", "said", "reason", "message"),
    [
        (145, '[API Error: {"error":{"code":401,"message":"No key"}}]', Reason.AUTH, "No key"),
        (147, "[API Error: denied]", Reason.AUTH, "denied"),
        (144, "[API Error: API key not valid.]", Reason.AUTH, "API key not valid."),
        (144, "[API Error: no such field]", Reason.AGENT_ERROR, "no such field"),
        (173, "[API Error: Too fast]\nPlease wait", Reason.RATE_LIMITED, "Too fast"),
        (247, "[API Error: broken]", Reason.AGENT_ERROR, "broken"),
        (1, "[API Error: fetch failed]", Reason.AGENT_ERROR, "fetch failed"),
        (54, "Error executing tool x", Reason.AGENT_ERROR, "Error executing tool x"),
        (1, None, Reason.AGENT_ERROR, "exited with 1"),
    ],
)
def test_failures_are_classified(
    tmp_path: Path, exit_code: int, said: str | None, reason: Reason, message: str
) -> None:
    got = outcome_of_events(tmp_path, exit_code, result("error", said))
    assert (got.status, got.reason, got.message) == (FAILED, reason, message)


def test_turn_limit_is_max_steps(tmp_path: Path) -> None:
    got = outcome_of_events(tmp_path, 53, result("error", "Reached max session turns"))
    assert (got.status, got.reason) == (PARTIAL, Reason.MAX_STEPS)


@pytest.mark.parametrize(
    ("warning", "status", "reason"),
    [
        ("Loop detected, stopping execution", PARTIAL, Reason.AGENT_FAILED),
        ("Maximum session turns exceeded", PARTIAL, Reason.MAX_STEPS),
        ("Agent execution blocked: once", SUCCESS, None),
    ],
)
def test_success_after_an_error_may_be_a_failure(
    tmp_path: Path, warning: str, status: Status, reason: Reason | None
) -> None:
    error = {"type": "error", "severity": "warning", "message": warning}
    got = outcome_of_events(tmp_path, 0, error, result("success"))
    assert (got.status, got.reason) == (status, reason)


def test_empty_answer_of_the_model_is_an_error(tmp_path: Path) -> None:
    error = {"type": "error", "severity": "error", "message": "The model returned nothing"}
    got = outcome_of_events(tmp_path, 0, error, result("error"))
    assert (got.status, got.reason) == (FAILED, Reason.AGENT_ERROR)
    assert got.message == "The model returned nothing"


def test_exit_code_overrides_reported_success(tmp_path: Path) -> None:
    got = outcome_of_events(tmp_path, 3, result("success"))
    assert (got.status, got.message) == (FAILED, "the agent reported success, but exited with 3")


def test_parallel_tool_calls_are_one_step() -> None:
    read = GeminiAgent().progress_reader()
    said = {"type": "message", "role": "assistant", "content": "I do both.", "delta": True}
    lines = [said, {"type": "tool_use"}, {"type": "tool_use"}]
    lines += [{"type": "tool_result"}, {"type": "tool_result"}, said, said]
    found = [read(json.dumps(line)) for line in lines]
    assert [progress.steps for progress in found if progress is not None] == [1, 2]
    assert read("{not json") is None


def test_command_contains_every_setting(tmp_path: Path) -> None:
    """The shell command before the program writes the settings where the program reads them."""
    given = command(
        "gemini", "--help me", "gemini-2.5-pro", max_steps=7, api_base="http://gw:1/v1beta/"
    )
    assert given.argv[-2:] == ("gemini-2.5-pro", "--prompt=--help me")
    assert given.env["GOOGLE_GEMINI_BASE_URL"] == "http://gw:1"
    words = ("sh", "-c", 'printf "%s;" "$GEMINI_API_KEY" "$@"', "sh")
    start = given.argv.index("gemini")
    argv = (*given.argv[:start], *words, *given.argv[start:])
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **given.env}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    key, *rest = done.stdout.split(";")[:-1]
    assert (key, rest) == ("none", list(given.argv[start:]))
    written = json.loads((tmp_path / ".gemini" / "settings.json").read_text())
    assert written["model"] == {"maxSessionTurns": 7}
    assert written["security"]["auth"]["selectedType"] == "gemini-api-key"


def test_turn_limit_on_stderr_is_max_steps(tmp_path: Path) -> None:
    said = {"type": "FatalTurnLimitedError", "message": "Reached max\nturns", "code": 53}
    error = json.dumps({"session_id": "s", "error": said}, indent=2)
    got = outcome_of_stderr(tmp_path, 53, f"Warning: x\n{error}\n")
    assert (got.status, got.reason) == (PARTIAL, Reason.MAX_STEPS)
    assert got.message == "Reached max turns"
    got = outcome_of_stderr(tmp_path, 53, "Reached max session turns for this session.\n")
    assert (got.status, got.reason) == (PARTIAL, Reason.MAX_STEPS)
    got = outcome_of_stderr(tmp_path, 42, f"{error}\n")
    assert (got.status, got.reason, got.message) == (
        FAILED,
        Reason.AGENT_ERROR,
        "Reached max turns",
    )
