"""The gemini adapter, against everything the real program was seen to print."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentCommand, AgentOutcome, AgentOutput, AgentSettings
from orchestrator.agents.gemini import GeminiAgent
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

RECORDED = Path(__file__).parents[1] / "data" / "agents" / "gemini"
SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED

# name: exit code, then status, reason, steps, tokens, message.
OUTCOMES: dict[str, tuple[int, Status, Reason | None, int, int | None, str]] = {
    "stream": (0, SUCCESS, None, 2, 2100, "Done: wrote hello.txt"),
    # Of `--output-format json`, which is not asked for.
    "ok": (0, PARTIAL, Reason.NO_REPORT, 0, None, "the agent exited with 0, but printed no report"),
    "auth": (145, FAILED, Reason.AUTH, 0, None, "the model's API answered 401"),
    # Killed while it tried again and again.
    "nobase": (137, FAILED, Reason.AGENT_ERROR, 0, None, "ended by SIGKILL"),
    "sigterm": (137, FAILED, Reason.AGENT_ERROR, 1, None, "ended by SIGKILL"),
    "sigterm-init": (137, FAILED, Reason.AGENT_ERROR, 1, None, "ended by SIGKILL"),
    # Recorded before its end.
    "worktree": (0, PARTIAL, Reason.NO_REPORT, 1, None, "the agent exited with 0, but printed "
    "no report"),
    "badflag": (
        1, FAILED, Reason.AGENT_ERROR, 0, None,
        "-h, --help                      Show help  [boolean]",
    ),
    "notrust": (
        55, FAILED, Reason.AGENT_ERROR, 0, None,
        "\ufffd[31mGemini CLI is not running in a trusted directory. To proceed, either use "
        "`--skip-trust`, set the `GEMINI_CLI_TRUST_WORKSPACE=true` environment variable, or trust "
        "this directory in interactive mo\u2026",
    ),
}  # fmt: skip


def outcome_of(stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return GeminiAgent().outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def outcome_of_events(tmp_path: Path, exit_code: int, *events: dict[str, Any]) -> AgentOutcome:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("".join(json.dumps(event) + "\n" for event in events))
    err.write_text("")
    return outcome_of(out, err, exit_code)


def outcome_of_stderr(tmp_path: Path, exit_code: int, said: str) -> AgentOutcome:
    (tmp_path / "out").write_text("")
    (tmp_path / "err").write_text(said)
    return outcome_of(tmp_path / "out", tmp_path / "err", exit_code)


def result(status: str, message: str | None = None) -> dict[str, Any]:
    error = {} if message is None else {"error": {"type": "unknown", "message": message}}
    return {"type": "result", "status": status, **error, "stats": {"total_tokens": 7}}


def command(task: str = "fix it", model: str | None = None, **asked: Any) -> AgentCommand:
    settings = AgentSettings.of(ParallelConfig(tasks=(task,), **asked))
    return GeminiAgent().command(WorkerSpec(worker_id=1, task=task, model=model), settings)


def test_every_recording_is_expected_to_mean_something() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_output_is_understood(name: str) -> None:
    exit_code, status, reason, steps, tokens, message = OUTCOMES[name]
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", exit_code)
    assert (got.status, got.reason, got.steps, got.tokens) == (status, reason, steps, tokens)
    assert (got.message, got.cost) == (message, None)


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
def test_failures_are_told_apart(
    tmp_path: Path, exit_code: int, said: str | None, reason: Reason, message: str
) -> None:
    got = outcome_of_events(tmp_path, exit_code, result("error", said))
    assert (got.status, got.reason, got.message) == (FAILED, reason, message)


def test_its_last_turn_is_the_limit(tmp_path: Path) -> None:
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
def test_a_success_after_an_error_may_be_none(
    tmp_path: Path, warning: str, status: Status, reason: Reason | None
) -> None:
    error = {"type": "error", "severity": "warning", "message": warning}
    got = outcome_of_events(tmp_path, 0, error, result("success"))
    assert (got.status, got.reason) == (status, reason)


def test_an_empty_answer_of_the_model_is_an_error_that_ends_well(tmp_path: Path) -> None:
    error = {"type": "error", "severity": "error", "message": "The model returned nothing"}
    got = outcome_of_events(tmp_path, 0, error, result("error"))
    assert (got.status, got.reason) == (FAILED, Reason.AGENT_ERROR)
    assert got.message == "The model returned nothing"


def test_success_is_not_believed_against_the_exit_code(tmp_path: Path) -> None:
    got = outcome_of_events(tmp_path, 3, result("success"))
    assert (got.status, got.message) == (FAILED, "the agent reported success, but exited with 3")


def test_several_tools_at_once_are_one_step() -> None:
    read = GeminiAgent().progress_reader()
    said = {"type": "message", "role": "assistant", "content": "I do both.", "delta": True}
    lines = [said, {"type": "tool_use"}, {"type": "tool_use"}]
    lines += [{"type": "tool_result"}, {"type": "tool_result"}, said, said]
    found = [read(json.dumps(line)) for line in lines]
    assert [progress.steps for progress in found if progress is not None] == [1, 2]
    assert read("{not json") is None


def test_the_command_names_every_setting(tmp_path: Path) -> None:
    """What the shell does before it starts the program leaves the settings where it looks."""
    given = command("--help me", "gemini-2.5-pro", max_steps=7, api_base="http://gw:1/v1beta/")
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


def test_a_key_is_wanted_unless_the_server_is_ones_own() -> None:
    agent = GeminiAgent()
    assert agent.missing_key(None, {}) == "GEMINI_API_KEY"
    assert agent.missing_key(None, {"GEMINI_API_KEY": "k"}) is None
    assert agent.missing_key(None, {"GOOGLE_GEMINI_BASE_URL": "http://x"}) is None


def test_budget_and_profile_are_refused() -> None:
    config = ParallelConfig(tasks=("t",), budget_per_worker=1, agent="reviewer")
    unsupported = load_agent("gemini").unsupported(AgentSettings.of(config))
    assert unsupported is not None
    assert "--budget-per-worker" in unsupported
    assert "--agent reviewer" in unsupported
    assert load_agent("gemini").unsupported(AgentSettings.of(ParallelConfig(tasks=("t",)))) is None


def test_the_limit_of_turns_told_on_stderr_alone(tmp_path: Path) -> None:
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
