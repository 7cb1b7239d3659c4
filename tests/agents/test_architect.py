"""Tests of the architect adapter alone; `test_adapters.py` has those of all adapters."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import AgentOutcome, AgentSettings
from orchestrator.agents.programs.architect import ArchitectAgent
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from tests.support import agents
from tests.support.agents import judge, judge_text

RECORDED = agents.RECORDED / "architect"
SUCCESS, PARTIAL, FAILED, TIMEOUT = Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.TIMEOUT


def outcome_of_report(
    tmp_path: Path, exit_code: int, stderr: str = "", **changed: Any
) -> AgentOutcome:
    """Return the outcome of a recorded success with changed fields; `...` removes a field."""
    fields = json.loads((RECORDED / "ok.out").read_text()) | changed
    report = {key: value for key, value in fields.items() if value is not ...}
    said = json.dumps(report, indent=2) + "\n"
    return judge_text("architect", tmp_path, said, stderr=stderr, exit_code=exit_code)


def settings(**changed: Any) -> AgentSettings:
    given: dict[str, Any] = {
        "profile": "build",
        "max_steps": 50,
        "budget": None,
        "timeout": None,
        "grace": 10.0,
        "api_base": None,
    }
    return AgentSettings(**(given | changed))


def spec(task: str = "fix it", model: str | None = None) -> WorkerSpec:
    return WorkerSpec(worker_id=1, task=task, model=model)


def test_a_report_within_the_debug_log_of_litellm_is_found(tmp_path: Path) -> None:
    log = (RECORDED / "ok-nolitellmlog.out").read_bytes() * 25  # real logs had up to 147 kB
    after = b"23:56:57 - LiteLLM:DEBUG: logging_worker.py:582 - [LoggingWorker] atexit: No queue\n"
    stdout = tmp_path / "out"
    stdout.write_bytes(log + b"\n" + (RECORDED / "ok.out").read_bytes() + after)
    got = judge("architect", stdout, RECORDED / "ok.err", 0)
    assert (got.status, got.steps, got.cost) == (SUCCESS, 1, 0.006)


@pytest.mark.parametrize(
    ("exit_code", "status", "reason"),
    [
        (0, SUCCESS, None),
        (1, FAILED, Reason.AGENT_ERROR),
        (2, FAILED, Reason.AGENT_ERROR),
        (130, PARTIAL, Reason.CANCELLED),
        (137, FAILED, Reason.AGENT_ERROR),
        (143, PARTIAL, Reason.CANCELLED),
    ],
)
def test_an_exit_code_other_than_0_is_never_success(
    tmp_path: Path, exit_code: int, status: Status, reason: Reason | None
) -> None:
    got = outcome_of_report(tmp_path, exit_code)
    assert (got.status, got.reason, got.steps, got.cost) == (status, reason, 1, 0.006)


@pytest.mark.parametrize("exit_code", [0, 2])
@pytest.mark.parametrize(
    ("status", "stop_reason", "expected"),
    [
        ("partial", "max_steps", (PARTIAL, Reason.MAX_STEPS)),
        ("success", "max_steps", (PARTIAL, Reason.MAX_STEPS)),
        ("failed", "max_steps", (FAILED, Reason.MAX_STEPS)),
        ("partial", "budget_exceeded", (PARTIAL, Reason.BUDGET)),
        ("partial", "context_full", (PARTIAL, Reason.CONTEXT_FULL)),
        ("partial", "timeout", (TIMEOUT, Reason.TIMEOUT)),
        ("partial", "user_interrupt", (PARTIAL, Reason.CANCELLED)),
        ("failed", "llm_error", (FAILED, Reason.AGENT_ERROR)),
        ("success", "llm_error", (FAILED, Reason.AGENT_ERROR)),
        ("failed", "llm_done", (FAILED, Reason.AGENT_FAILED)),
        ("partial", "llm_done", (PARTIAL, Reason.AGENT_FAILED)),
        ("exploded", "llm_done", (PARTIAL, Reason.AGENT_FAILED)),
        ("unknown", None, (PARTIAL, Reason.AGENT_FAILED)),
        (None, None, (PARTIAL, Reason.AGENT_FAILED)),
        (["success"], {"a": 1}, (PARTIAL, Reason.AGENT_FAILED)),
        (True, 0, (PARTIAL, Reason.AGENT_FAILED)),
    ],
)
def test_worse_of_status_and_stop_reason_is_used(
    tmp_path: Path, exit_code: int, status: object, stop_reason: object, expected: object
) -> None:
    got = outcome_of_report(tmp_path, exit_code, status=status, stop_reason=stop_reason)
    assert (got.status, got.reason) == expected


@pytest.mark.parametrize("stop_reason", ["llm_done", "something_new", None])
def test_success_with_another_stop_reason_is_success(tmp_path: Path, stop_reason: object) -> None:
    assert outcome_of_report(tmp_path, 0, stop_reason=stop_reason).status is SUCCESS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("litellm.AuthenticationError: AuthenticationError: OpenAIException - no", Reason.AUTH),
        ("litellm.PermissionDeniedError: PermissionDeniedError: no", Reason.AUTH),
        ("litellm.RateLimitError: RateLimitError: OpenAIException - slow", Reason.RATE_LIMITED),
        ("litellm.ContextWindowExceededError: too long", Reason.CONTEXT_FULL),
        ("litellm.BadRequestError: see AuthenticationError, 401, 429", Reason.AGENT_ERROR),
        ("litellm.Timeout: APITimeoutError - Request timed out", Reason.AGENT_ERROR),
        ("AuthenticationError", Reason.AGENT_ERROR),
        ("No module named 'mcp'", Reason.AGENT_ERROR),
    ],
)
def test_api_errors_are_classified_by_exception_name(
    tmp_path: Path, text: str, reason: Reason
) -> None:
    output = f"Unrecoverable LLM error: {text}"
    got = outcome_of_report(tmp_path, 1, status="failed", stop_reason="llm_error", output=output)
    assert (got.status, got.reason) == (FAILED, reason)


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("Authentication error: litellm.AuthenticationError: no\n", Reason.AUTH),
        ("Unexpected error: litellm.RateLimitError: slow\n", Reason.RATE_LIMITED),
        ("\n\nAuthentication error: litellm.AuthenticationError: no\n", Reason.AUTH),
        ("Authentication error: the author is unknown\n", Reason.AGENT_ERROR),
        ("the text litellm.AuthenticationError: in a line of something else", Reason.AGENT_ERROR),
        ("", Reason.AGENT_ERROR),
    ],
)
def test_without_report_stderr_determines_the_outcome(
    tmp_path: Path, stderr: str, reason: Reason
) -> None:
    got = judge_text("architect", tmp_path, "", stderr=stderr, exit_code=1)
    assert (got.status, got.reason) == (FAILED, reason)
    assert got.message == (stderr.strip() or "exited with 1")


@pytest.mark.parametrize(
    ("changed", "cost"),
    [
        ({}, 0.006),
        ({"cost": 0}, 0.0),
        ({"cost": ...}, 0.006),
        ({"cost": ..., "costs": {"total_cost_usd": 2}}, 2.0),
        ({"cost": ..., "costs": ...}, None),
        ({"cost": ..., "costs": [1]}, None),
        ({"cost": ..., "costs": {"total_cost_usd": True}}, None),
        ({"cost": -1, "costs": ...}, None),
        ({"cost": 1e300, "costs": ...}, None),
        ({"cost": 10**400, "costs": ...}, None),
        ({"cost": "0.1", "costs": ...}, None),
        ({"cost": True, "costs": ...}, None),
        ({"cost": None, "costs": ...}, None),
        ({"cost": {}, "costs": ...}, None),
    ],
)
def test_implausible_cost_is_unknown(
    tmp_path: Path, changed: dict[str, object], cost: float | None
) -> None:
    got = outcome_of_report(tmp_path, 0, **changed)
    assert got.status is SUCCESS
    assert got.cost == cost


def test_an_infinite_cost_is_unknown(tmp_path: Path) -> None:
    said = '{"status":"success","stop_reason":"llm_done","steps":1,"cost":1e999}'
    got = judge_text("architect", tmp_path, said, exit_code=0)
    assert (got.status, got.cost) == (SUCCESS, None)


@pytest.mark.parametrize("steps", [-1, 1.5, "7", True, None, 10**100, [], {}])
def test_implausible_steps_count_as_zero(tmp_path: Path, steps: object) -> None:
    got = outcome_of_report(tmp_path, 0, steps=steps)
    assert (got.status, got.steps) == (SUCCESS, 0)


def test_text_of_the_report_is_made_harmless(tmp_path: Path) -> None:
    output = "\x1b]0;pwned\x07 line\n\n  two \u202e \ud800" + "x" * 100_000
    message = outcome_of_report(tmp_path, 0, output=output).message
    assert message is not None
    assert message.startswith("line two \ufffd \ufffdxxx")
    assert message.isprintable()
    assert len(message) == 200


@pytest.mark.parametrize("output", [None, "", " \n ", 5, [], {}])
def test_a_report_without_text_has_no_message(tmp_path: Path, output: object) -> None:
    got = outcome_of_report(tmp_path, 0, output=output)
    assert (got.status, got.message) == (SUCCESS, None)


def test_minimal_command_line() -> None:
    command = ArchitectAgent().command(spec(), settings())
    assert command.argv == (
        *("architect", "run", "--json", "--quiet", "--confirm-mode", "yolo"),
        *("--agent", "build", "--max-steps", "50", "--", "fix it"),
    )
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    assert command.env.items() >= quiet.items()


def test_every_option_reaches_the_program() -> None:
    given = settings(
        profile="review",
        max_steps=7,
        budget=0.25,
        timeout=600.0,
        config_file="/run/secrets/agent-config",
        api_base="http://model:8080/v1",
    )
    argv = ArchitectAgent().command(spec(model="gpt-4o"), given).argv
    options = argv[6 : argv.index("--")]
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--agent": "review",
        "--max-steps": "7",
        "--model": "gpt-4o",
        "--budget": "0.25",
        "--timeout": "570",
        "--config": "/run/secrets/agent-config",
        "--api-base": "http://model:8080/v1",
    }


@pytest.mark.parametrize(
    ("timeout", "grace", "inner"),
    [
        (None, 10, None),
        (600, 10, 570),
        (600, 60, 540),
        (3600, 0, 3570),
        (60, 10, 45),
        (20, 10, 15),
        (4, 30, 3),
        (2, 10, 1),
        (0.5, 10, 1),
    ],
)
def test_program_timeout_is_shorter_than_the_workers(
    timeout: float | None, grace: float, inner: int | None
) -> None:
    argv = ArchitectAgent().command(spec(), settings(timeout=timeout, grace=grace)).argv
    given = argv[argv.index("--timeout") + 1] if "--timeout" in argv else None
    assert given == (None if inner is None else str(inner))


def test_only_keys_and_urls_of_models_are_inherited() -> None:
    names = ArchitectAgent().inherited_env
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_BASE"} <= set(names)
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith(("AWS_", "GITHUB_", "HF_", "GOOGLE_"))]
    assert "ARCHITECT_WORKSPACE" not in names  # a path on the host


def test_progress_reader_reports_nothing() -> None:
    assert ArchitectAgent().progress_reader()('{"cost": 1, "steps": 1}') is None
