"""Tests of the aider adapter alone; `test_adapters.py` has those of all adapters."""

from pathlib import Path

import pytest

from orchestrator.agents.base import AgentOutcome, AgentProgress
from orchestrator.agents.programs.aider import AiderAgent
from orchestrator.base.results import Reason, Status
from tests.support.agents import command, judge_text

SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED
DOWN = "litellm.InternalServerError: InternalServerError: OpenAIException - {}"

ANSWER = "Tokens: 1.0k sent, 50 received. Cost: $0.0030 message, $0.0030 session.\n"


def outcome_of_text(tmp_path: Path, text: str, exit_code: int = 0) -> AgentOutcome:
    return judge_text("aider", tmp_path, text, exit_code=exit_code)


@pytest.mark.parametrize(
    ("text", "steps", "cost", "tokens"),
    [
        (ANSWER, 1, 0.003, 1050),
        ("Tokens: 12k sent, 1.5k received. Cost: $0.05 message, $0.05 session.\n", 1, 0.05, 13500),
        (
            ANSWER + "Tokens: 2.0k sent, 60 received. Cost: $0.0040 message, $0.0070 session.\n",
            2, 0.007, 3110,
        ),
        ("Tokens: 8 sent, 2 received.\n", 1, None, 10),
        ("Tokens: 8 sent, 3 cache write, 2 received. Cost: $1.00 message, $2.00 session.\n",
         1, 2.0, 10),
        ("Tokens: 8 sent, 3 cache write, 1.2k cache hit, 2 received.\n"
         "Cost: $1.00 message, $2.00 session.\n", 1, 2.0, 10),
        (f"> {ANSWER}{ANSWER}", 1, 0.003, 1050),
    ],
)  # fmt: skip
def test_usage_is_parsed_from_the_text(
    tmp_path: Path, text: str, steps: int, cost: float | None, tokens: int
) -> None:
    got = outcome_of_text(tmp_path, text)
    assert (got.status, got.steps, got.cost, got.tokens) == (SUCCESS, steps, cost, tokens)


@pytest.mark.parametrize(
    "text",
    [
        "Tokens: -1 sent, nan received. Cost: $1e9 message, $1e9 session.\n",
        "Tokens: k sent, k received.\n",
        "Tokens: " + "9" * 5000 + " sent, 1 received.\n",
        "Cost: $0.0030 message, $0.0030 session.\n",
        "",
    ],
)
def test_malformed_figures_are_ignored(tmp_path: Path, text: str) -> None:
    got = outcome_of_text(tmp_path, text)
    assert (got.status, got.reason) == (PARTIAL, Reason.NO_REPORT)
    assert (got.steps, got.cost, got.tokens) == (0, None, None)


LIMITED = "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached\n"
BROKE = f"{DOWN.format('Connection error.')}\n"
RETRY = "Retrying in 0.2 seconds...\n"


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (LIMITED + RETRY + LIMITED, FAILED, Reason.RATE_LIMITED),
        (BROKE + RETRY + BROKE, FAILED, Reason.AGENT_ERROR),
        (BROKE + RETRY + LIMITED, FAILED, Reason.RATE_LIMITED),
        (LIMITED + RETRY + ANSWER, SUCCESS, None),
        (ANSWER + LIMITED, FAILED, Reason.RATE_LIMITED),
        # The request for a commit message failed, but aider committed with another message.
        (ANSWER + "Applied edit to a.txt\n" + BROKE + "Commit 2343853 docs: a\n", SUCCESS, None),
        (ANSWER + "Commit 2343853 docs: a\n" + LIMITED, FAILED, Reason.RATE_LIMITED),
        (
            "litellm.BadRequestError: OpenAIException - You didn't provide an API key.\n",
            FAILED,
            Reason.AUTH,
        ),
        (ANSWER + "Only 3 reflections allowed, stopping.\n", PARTIAL, Reason.MAX_STEPS),
        ("Model gpt-4o has hit a token limit!\n", PARTIAL, Reason.CONTEXT_FULL),
        ("the text litellm.AuthenticationError: in a line\n" + ANSWER, SUCCESS, None),
    ],
)
def test_last_message_determines_the_outcome(
    tmp_path: Path, text: str, status: Status, reason: Reason | None
) -> None:
    """The exit code is 0 in all of these cases."""
    got = outcome_of_text(tmp_path, text)
    assert (got.status, got.reason) == (status, reason)


@pytest.mark.parametrize(
    ("text", "exit_code", "reason"),
    [
        (LIMITED + RETRY, 1, Reason.RATE_LIMITED),
        (ANSWER, 1, Reason.AGENT_ERROR),
        (LIMITED + RETRY + ANSWER, 1, Reason.AGENT_ERROR),
        # An error before a signal is not the reason for the end.
        (LIMITED + RETRY, 143, Reason.AGENT_ERROR),
    ],
)
def test_other_exit_code_is_a_failure(
    tmp_path: Path, text: str, exit_code: int, reason: Reason
) -> None:
    got = outcome_of_text(tmp_path, text, exit_code)
    assert (got.status, got.reason) == (FAILED, reason)


def test_traceback_is_reported_by_its_last_line(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n  File \"a.py\"\n\n    x()\nKeyError: 'x'\n\n'x'\n"
    got = outcome_of_text(tmp_path, ANSWER + trace)
    assert (got.status, got.reason, got.message) == (FAILED, Reason.AGENT_ERROR, "KeyError: 'x'")


def test_flood_of_text_is_parsed_quickly(tmp_path: Path) -> None:
    flood = "Tokens: 1 sent, " * 300_000 + "\n" + "Model x " * 100_000 + "\nTraceback" * 50_000
    assert outcome_of_text(tmp_path, flood).reason is Reason.NO_REPORT


def test_answers_are_counted_while_the_program_runs() -> None:
    read = AiderAgent().progress_reader()
    lines = ["Some text", ANSWER.strip(), "Tokens: 8 sent, 2 received.",
             "Cost: $1.00 message, $2.00 session.", "{}"]  # fmt: skip
    assert [read(line) for line in lines] == [
        None,
        AgentProgress(cost=0.003, steps=1, tokens=1050),
        AgentProgress(cost=None, steps=2, tokens=1060),
        AgentProgress(cost=2.0, steps=2, tokens=1060),
        None,
    ]
    only = AgentProgress(cost=0.003, steps=1, tokens=1050)
    assert AiderAgent().progress_reader()(ANSWER) == only


def test_command_asks_no_questions() -> None:
    asked = command("aider", "--help me", "claude-x", max_steps=7, budget_per_worker=0.5)
    assert asked.argv[:3] == ("python3", "-I", "-c")
    assert asked.argv[4] == "aider"
    assert {"--yes-always", "--no-check-update", "--analytics-disable"} < {*asked.argv}
    assert asked.argv[-3:] == ("--model", "anthropic/claude-x", "--message=--help me")
    assert "--model" not in command("aider").argv
