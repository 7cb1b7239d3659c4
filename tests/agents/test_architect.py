"""The architect adapter, against everything the real program was seen to print."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.architect import ArchitectAgent
from orchestrator.agents.base import AgentOutcome, AgentOutput, AgentSettings
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

RECORDED = Path(__file__).parents[1] / "data" / "agents" / "architect"
SUCCESS, PARTIAL, FAILED, TIMEOUT = Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.TIMEOUT

# name: exit code, then status, reason, steps, cost, tokens.
OUTCOMES: dict[str, tuple[int, Status, Reason | None, int, float | None, int | None]] = {
    "ok": (0, SUCCESS, None, 1, 0.006, 2100),
    "ok-quiet": (0, SUCCESS, None, 1, 0.006, 2100),
    "claude": (0, SUCCESS, None, 1, 0.0075, 2100),
    "envbase": (0, SUCCESS, None, 1, 0.006, 2100),
    "ll81": (0, SUCCESS, None, 1, 0.006, 2100),
    "ll81q": (0, SUCCESS, None, 1, 0.006, 2100),
    "oaiprefix": (0, SUCCESS, None, 1, 0.0075, 2100),
    "report": (0, SUCCESS, None, 1, 0.006, 2100),
    "ro-nohome": (0, SUCCESS, None, 1, 0.006, 2100),
    "ro-nonroot": (0, SUCCESS, None, 1, 0.006, 2100),
    "worktree": (0, SUCCESS, None, 1, 0.006, 2100),
    "maxsteps": (2, PARTIAL, Reason.MAX_STEPS, 2, 0.006, 2100),
    "budget": (2, PARTIAL, Reason.BUDGET, 0, 0.003, 1050),
    "timeout5": (2, TIMEOUT, Reason.TIMEOUT, 1, 0.003, 1050),
    "sigterm": (130, PARTIAL, Reason.CANCELLED, 1, 0.003, 1050),
    "sigterm-init": (130, PARTIAL, Reason.CANCELLED, 1, 0.003, 1050),
    "sigterm-late": (130, PARTIAL, Reason.CANCELLED, 1, 0.003, 1050),
    "sigterm-init-late": (130, PARTIAL, Reason.CANCELLED, 1, 0.003, 1050),
    "sigterm-grace30": (130, PARTIAL, Reason.CANCELLED, 1, 0.003, 1050),
    "sigterm-short-grace": (137, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "oom": (137, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "auth": (1, FAILED, Reason.AUTH, 0, None, None),
    "nokey": (1, FAILED, Reason.AUTH, 0, None, None),
    "onlylitellmkey": (1, FAILED, Reason.AUTH, 0, None, None),
    "ll81k": (1, FAILED, Reason.AUTH, 0, None, None),
    "err500": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "noconn": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "unkmodel": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "badagent": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "badcfg1": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "badcfg2": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
    # The program gives 4, authentication, because an agent is named `author_bot`.
    "badcfg3": (4, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "badcfgpath": (2, FAILED, Reason.AGENT_ERROR, 0, None, None),
    "badflag": (2, FAILED, Reason.AGENT_ERROR, 0, None, None),
    # Both were cut at 6 kB, within the debug log that comes before the report.
    "ok-nolitellmlog": (0, PARTIAL, Reason.NO_REPORT, 0, None, None),
    "success": (1, FAILED, Reason.AGENT_ERROR, 0, None, None),
}
MESSAGES = {
    "ok": "Done: wrote hello.txt",
    "budget": "Budget exceeded. Total cost: $0.0030. Steps completed: 0.",
    "sigterm-short-grace": "ended by SIGKILL",
    "oom": "ended by SIGKILL",
    "badagent": "Error: Agent 'nosuch' not found. Available agents: build, plan, resume, review "
    "Available agents: build, plan, resume, review",
    "badcfg1": 'Unexpected error: while parsing a flow sequence in "/cfg.yaml", line 2, column 10 '
    "expected ',' or ']', but got '<stream end>' in \"/cfg.yaml\", line 3, column 1",
    "badflag": "Error: No such option '--bogus'. Did you mean '--verbose'?",
    "ok-nolitellmlog": "the agent exited with 0, but printed no report",
}


def outcome_of(stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return ArchitectAgent().outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def outcome_of_report(
    tmp_path: Path, exit_code: int, stderr: str = "", **changed: Any
) -> AgentOutcome:
    """Judge the recorded success, some of its fields being changed; `...` leaves one out."""
    fields = json.loads((RECORDED / "ok.out").read_text()) | changed
    report = {key: value for key, value in fields.items() if value is not ...}
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text(json.dumps(report, indent=2) + "\n")
    err.write_text(stderr)
    return outcome_of(out, err, exit_code)


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


def test_every_recording_is_expected_to_mean_something() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_output_is_understood(name: str) -> None:
    exit_code, *expected = OUTCOMES[name]
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", exit_code)
    assert [got.status, got.reason, got.steps, got.cost, got.tokens] == expected
    assert got.message is not None
    assert got.message.isprintable()
    assert len(got.message) <= 200


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_say_what_happened(name: str) -> None:
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", OUTCOMES[name][0])
    assert got.message == MESSAGES[name]


def test_a_report_within_the_debug_log_of_litellm_is_found(tmp_path: Path) -> None:
    log = (RECORDED / "ok-nolitellmlog.out").read_bytes() * 25  # 147 kB were seen
    after = b"23:56:57 - LiteLLM:DEBUG: logging_worker.py:582 - [LoggingWorker] atexit: No queue\n"
    stdout = tmp_path / "out"
    stdout.write_bytes(log + b"\n" + (RECORDED / "ok.out").read_bytes() + after)
    got = outcome_of(stdout, RECORDED / "ok.err", 0)
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
def test_the_worse_of_status_and_stop_reason_counts(
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
def test_what_the_model_refused_is_told_apart_by_exact_names(
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
def test_without_a_report_stderr_is_asked(tmp_path: Path, stderr: str, reason: Reason) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_bytes(b"")
    err.write_text(stderr)
    got = outcome_of(out, err, 1)
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
def test_a_cost_that_cannot_be_is_unknown(
    tmp_path: Path, changed: dict[str, object], cost: float | None
) -> None:
    got = outcome_of_report(tmp_path, 0, **changed)
    assert got.status is SUCCESS
    assert got.cost == cost


def test_an_infinite_cost_is_unknown(tmp_path: Path) -> None:
    stdout = tmp_path / "out"
    stdout.write_text('{"status":"success","stop_reason":"llm_done","steps":1,"cost":1e999}')
    got = outcome_of(stdout, RECORDED / "ok.err", 0)
    assert (got.status, got.cost) == (SUCCESS, None)


@pytest.mark.parametrize("steps", [-1, 1.5, "7", True, None, 10**100, [], {}])
def test_steps_that_cannot_be_are_none(tmp_path: Path, steps: object) -> None:
    got = outcome_of_report(tmp_path, 0, steps=steps)
    assert (got.status, got.steps) == (SUCCESS, 0)


def test_text_of_the_report_cannot_steer_a_terminal(tmp_path: Path) -> None:
    output = "\x1b]0;pwned\x07 line\n\n  two \u202e \ud800" + "x" * 100_000
    message = outcome_of_report(tmp_path, 0, output=output).message
    assert message is not None
    assert message.startswith("\ufffd]0;pwned\ufffd line two \ufffd \ufffdxxx")
    assert message.isprintable()
    assert len(message) == 200


@pytest.mark.parametrize("output", [None, "", " \n ", 5, [], {}])
def test_a_report_without_text_has_no_message(tmp_path: Path, output: object) -> None:
    got = outcome_of_report(tmp_path, 0, output=output)
    assert (got.status, got.message) == (SUCCESS, None)


def test_the_least_command_line() -> None:
    command = ArchitectAgent().command(spec(), settings())
    assert command.argv == (
        *("architect", "run", "--json", "--quiet", "--confirm-mode", "yolo"),
        *("--agent", "build", "--max-steps", "50", "--", "fix it"),
    )
    quiet = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    assert command.env.items() >= quiet.items()


def test_every_option_reaches_the_program() -> None:
    given = settings(
        profile="review", max_steps=7, budget=0.25, timeout=600.0, api_base="http://model:8080/v1"
    )
    argv = ArchitectAgent().command(spec(model="gpt-4o"), given).argv
    options = argv[6 : argv.index("--")]
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--agent": "review",
        "--max-steps": "7",
        "--model": "gpt-4o",
        "--budget": "0.25",
        "--timeout": "570",
        "--api-base": "http://model:8080/v1",
    }


@pytest.mark.parametrize("task", ["--help", "-", "--", "- a list\n- of things", "--model x"])
def test_a_task_that_begins_with_a_dash_is_an_argument(task: str) -> None:
    assert ArchitectAgent().command(spec(task), settings()).argv[-2:] == ("--", task)


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
def test_the_program_is_given_less_time_than_the_worker(
    timeout: float | None, grace: float, inner: int | None
) -> None:
    argv = ArchitectAgent().command(spec(), settings(timeout=timeout, grace=grace)).argv
    given = argv[argv.index("--timeout") + 1] if "--timeout" in argv else None
    assert given == (None if inner is None else str(inner))


def test_only_keys_and_addresses_of_models_are_passed_on() -> None:
    names = ArchitectAgent().inherited_env
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_BASE"} <= set(names)
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.startswith(("AWS_", "GITHUB_", "HF_", "GOOGLE_"))]
    assert "ARCHITECT_WORKSPACE" not in names  # a path on the host


def test_it_says_nothing_while_it_runs() -> None:
    assert ArchitectAgent().progress_reader()('{"cost": 1, "steps": 1}') is None


def test_it_is_found_by_its_name() -> None:
    agent = load_agent("architect")
    assert isinstance(agent, ArchitectAgent)
    assert agent.name == "architect"
    assert agent.ignored_files == (".architect/",)
