"""Tests of the mini adapter alone; `test_adapters.py` has those of all adapters."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import in_container as inside
from orchestrator.agents.base import AgentOutcome
from orchestrator.base.results import Reason, Status
from tests.support.agents import RECORDED, command, json_text, judge_text

SUCCESS, PARTIAL, FAILED, TIMEOUT = Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.TIMEOUT
UNREPORTED = "the agent exited with 0, but printed no report"


def as_expected(got: AgentOutcome) -> list[object]:
    return [got.status, got.reason, got.steps, got.cost, got.tokens, got.message]


def report(**changed: Any) -> dict[str, object]:
    found = inside.summary(str(RECORDED / "mini" / "ok.traj.json"))
    assert found is not None
    return found | changed


def outcome_of_report(tmp_path: Path, exit_code: int, **changed: Any) -> AgentOutcome:
    said = f"text for people\n\n{json_text(report(**changed))}"
    return judge_text("mini", tmp_path, said, exit_code=exit_code)


LIMITS = {"exit_status": "LimitsExceeded", "said": "LimitsExceeded"}
ERROR = "litellm.{0}: {0}: OpenAIException - no"


@pytest.mark.parametrize(
    ("exit_code", "changed", "status", "reason", "message"),
    [
        (0, {}, SUCCESS, None, None),
        (0, {"said": "all\ndone"}, SUCCESS, None, "all done"),
        (1, {}, FAILED, Reason.AGENT_ERROR, "the agent submitted its work, but exited with 1"),
        (143, {}, FAILED, Reason.AGENT_ERROR, "the agent submitted its work, but ended by SIGTERM"),
        (0, {**LIMITS, "step_limit": 2}, PARTIAL, Reason.MAX_STEPS,
         "the agent used all of its 2 steps"),
        (0, {**LIMITS, "step_limit": 2, "cost_limit": 0.0}, PARTIAL, Reason.MAX_STEPS,
         "the agent used all of its 2 steps"),
        (0, {**LIMITS, "cost_limit": 0.005}, PARTIAL, Reason.BUDGET,
         "the agent spent $0.0060 of $0.0050"),
        (0, {**LIMITS, "cost_limit": 0.006}, PARTIAL, Reason.BUDGET,
         "the agent spent $0.0060 of $0.0060"),
        (0, {"exit_status": "TimeExceeded"}, TIMEOUT, Reason.TIMEOUT,
         "the agent stopped just before its deadline"),
        (0, {"exit_status": "RepeatedFormatError"}, FAILED, Reason.AGENT_FAILED,
         "the model repeatedly gave no command"),
        (1, {"exit_status": "AuthenticationError", "said": ERROR.format("AuthenticationError")},
         FAILED, Reason.AUTH, ERROR.format("AuthenticationError")),
        (1, {"exit_status": "RateLimitError"}, FAILED, Reason.RATE_LIMITED, "RateLimitError"),
        (1, {"exit_status": "ContextWindowExceededError"}, FAILED, Reason.CONTEXT_FULL,
         "ContextWindowExceededError"),
        (1, {"exit_status": "InternalServerError"}, FAILED, Reason.AGENT_ERROR,
         "InternalServerError"),
        (0, {"exit_status": "Something new"}, FAILED, Reason.AGENT_ERROR, "Something new"),
        # A program stopped between two steps leaves a trajectory without an exit status.
        (143, {"exit_status": ""}, FAILED, Reason.AGENT_ERROR, "ended by SIGTERM"),
        (0, {"exit_status": ["Submitted"]}, PARTIAL, Reason.NO_REPORT, UNREPORTED),
    ],
)  # fmt: skip
def test_exit_status_determines_the_outcome(
    tmp_path: Path,
    exit_code: int,
    changed: dict[str, Any],
    status: Status,
    reason: Reason | None,
    message: str | None,
) -> None:
    got = outcome_of_report(tmp_path, exit_code, **changed)
    assert as_expected(got) == [status, reason, 2, 0.006, 2100, message]


@pytest.mark.parametrize("cost", [0, 0.0, -1, "0.1", None, True])
def test_zero_cost_is_unknown(tmp_path: Path, cost: object) -> None:
    """mini reports 0 for models without a price."""
    got = outcome_of_report(tmp_path, 0, cost=cost, tokens=0)
    assert (got.cost, got.tokens) == (None, None)


def test_command_contains_every_setting() -> None:
    asked = command(
        "mini", "--help me", "claude-x", max_steps=7, budget_per_worker=0.5, timeout_per_worker=100
    )
    program = asked.argv[asked.argv.index("mini") :]
    assert asked.argv[:3] == ("python3", "-I", "-c")
    assert program == (
        *("mini", "-y", "--exit-immediately", "-c", "mini.yaml", "-c", "agent.step_limit=7"),
        *("-l", "0.5", "-c", "agent.wall_time_limit_seconds=90"),
        *("-m", "anthropic/claude-x", "-t", "--help me"),
    )
    # With cost tracking, `mini` fails for a model without a price instead of ignoring the budget.
    assert "MSWEA_COST_TRACKING" not in asked.env


def test_unset_limits_are_disabled() -> None:
    asked = command("mini", timeout_per_worker=0)
    assert asked.argv[-4:] == ("-l", "0", "-t", "fix it")
    assert asked.env["MSWEA_COST_TRACKING"] == "ignore_errors"
    assert asked.env["MSWEA_CONFIGURED"] == "true"
