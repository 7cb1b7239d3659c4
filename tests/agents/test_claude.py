"""The claude adapter, against everything the real program was seen to print."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentOutcome, AgentOutput, AgentProgress, AgentSettings
from orchestrator.agents.claude import ClaudeAgent
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

RECORDED = Path(__file__).parents[1] / "data" / "agents" / "claude"
SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED
DONE = "Done: wrote hello.txt"
OVERLOADED = (
    "API Error: {}. This is a server-side issue, usually temporary \u2014 try again in a moment. "
    "If it persists, check your inference gateway (172.17.0.1:{})."
)

# name: exit code, then status, reason, steps, cost, tokens, message.
# Recordings without `stream` are of `--output-format json`: one line, and no steps to be counted.
OUTCOMES: dict[str, tuple[int, Status, Reason | None, int, float | None, int | None, str]] = {
    "json": (0, SUCCESS, None, 0, 0.0075, 2100, DONE),
    "nohome": (0, SUCCESS, None, 0, 0.0075, 2100, DONE),
    "noperm": (0, SUCCESS, None, 0, 0.0075, 2100, DONE),
    "plaintraffic": (0, SUCCESS, None, 0, 0.0075, 2100, DONE),
    "root2": (0, SUCCESS, None, 0, 0.0075, 2100, DONE),
    "worktree": (0, SUCCESS, None, 0, 0.0075, 2100, DONE),
    "stream-ok": (0, SUCCESS, None, 2, 0.012525, 4035, "Done."),
    "stream-both": (0, SUCCESS, None, 2, 0.012735, 4049, "Done."),
    "maxturns": (1, PARTIAL, Reason.MAX_STEPS, 0, 0.0075, 2100,
                 "Reached maximum number of turns (2)"),
    "stream-maxturns": (1, PARTIAL, Reason.MAX_STEPS, 2, 0.01275, 4050,
                        "Reached maximum number of turns (2)"),
    "stream-budget": (1, PARTIAL, Reason.BUDGET, 1, 0.38076, None,
                      "Reached maximum budget ($0.01)"),
    "auth1": (1, FAILED, Reason.AUTH, 0, 0.0, None,
              "Failed to authenticate. API Error: 401 Incorrect API key provided: sk-xxx"),
    "stream-401": (1, FAILED, Reason.AUTH, 0, 0.0, None,
                   "Failed to authenticate. API Error: 401 Incorrect API key provided"),
    "nokey": (1, FAILED, Reason.AUTH, 0, 0.0, None, "Not logged in \u00b7 Please run /login"),
    "stream-429": (1, FAILED, Reason.RATE_LIMITED, 0, 0.0, None,
                   "API Error: Request rejected (429) \u00b7 Rate limit reached"),
    "err": (1, FAILED, Reason.AGENT_ERROR, 0, 0.0, None,
            OVERLOADED.format("500 mock internal error", 18080)),
    "stream-500": (1, FAILED, Reason.AGENT_ERROR, 0, 0.0, None,
                   OVERLOADED.format("500 mock broke", 18777)),
    "stream-529": (1, FAILED, Reason.AGENT_ERROR, 0, 0.0, None,
                   OVERLOADED.format("529 Overloaded", 18777)),
    "stream-noconn": (1, FAILED, Reason.AGENT_ERROR, 0, 0.0, None,
                      "API Error: Connection refused \u2014 a firewall or proxy may be blocking it "
                      "(ECONNREFUSED)"),
    "stream-nonet": (1, FAILED, Reason.AGENT_ERROR, 0, 0.0, None,
                     "API Error: No internet route \u2014 check your connection or VPN "
                     "(ENETUNREACH)"),
    "badagent": (1, FAILED, Reason.AGENT_ERROR, 0, None, None,
                 "--agent 'nosuch' not found. Available agents: claude, Explore, general-purpose, "
                 "Plan, statusline-setup"),
    "badflag": (1, FAILED, Reason.AGENT_ERROR, 0, None, None, "error: unknown option '--bogus'"),
    "root": (1, FAILED, Reason.AGENT_ERROR, 0, None, None,
             "--dangerously-skip-permissions cannot be used with root/sudo privileges for security "
             "reasons"),
    # With 10 retries it was still asking, and silent, when it was killed.
    "auth": (124, FAILED, Reason.AGENT_ERROR, 0, None, None, "exited with 124"),
    "sigterm": (143, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGTERM"),
    "sigterm-init": (143, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGTERM"),
    # Cut at 6 kB, within the report.
    "stream": (0, PARTIAL, Reason.NO_REPORT, 2, None, None, "the agent exited with 0, but "
    "printed no report"),
}  # fmt: skip


def outcome_of(stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return ClaudeAgent().outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def outcome_of_report(tmp_path: Path, exit_code: int, **changed: Any) -> AgentOutcome:
    """Judge the recorded success, some of its fields being changed; `...` leaves one out."""
    fields = json.loads((RECORDED / "json.out").read_text()) | changed
    report = {key: value for key, value in fields.items() if value is not ...}
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text(json.dumps(report) + "\n")
    err.write_text("")
    return outcome_of(out, err, exit_code)


def command(task: str = "fix it", model: str | None = None, **asked: Any) -> tuple[str, ...]:
    settings = AgentSettings.of(ParallelConfig(tasks=(task,), **asked))
    spec = WorkerSpec(worker_id=1, task=task, model=model)
    return ClaudeAgent().command(spec, settings).argv


def test_every_recording_is_expected_to_mean_something() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_output_is_understood(name: str) -> None:
    exit_code, status, reason, steps, cost, tokens, message = OUTCOMES[name]
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", exit_code)
    assert (got.status, got.reason, got.steps, got.tokens) == (status, reason, steps, tokens)
    assert got.cost == (None if cost is None else pytest.approx(cost))
    assert got.message == message


@pytest.mark.parametrize(
    ("exit_code", "changed", "status", "reason"),
    [
        (1, {}, FAILED, Reason.AGENT_ERROR),
        (0, {"is_error": ...}, FAILED, Reason.AGENT_ERROR),
        (0, {"is_error": "no"}, FAILED, Reason.AGENT_ERROR),
        (0, {"is_error": True}, FAILED, Reason.AGENT_ERROR),
        (1, {"is_error": True, "api_error_status": 403}, FAILED, Reason.AUTH),
        (1, {"is_error": True, "api_error_status": "429"}, FAILED, Reason.AGENT_ERROR),
        (1, {"is_error": True, "result": "Prompt is too long"}, FAILED, Reason.CONTEXT_FULL),
        (1, {"is_error": True, "subtype": "error_during_execution"}, FAILED, Reason.AGENT_ERROR),
        (0, {"usage": 1, "errors": {}, "result": 5}, SUCCESS, None),
    ],
)
def test_no_field_alone_decides(
    tmp_path: Path, exit_code: int, changed: dict[str, Any], status: Status, reason: Reason | None
) -> None:
    if changed.get("is_error", 0) is ...:
        changed = {**changed, "is_error": None}
    got = outcome_of_report(tmp_path, exit_code, **changed)
    assert (got.status, got.reason) == (status, reason)


def test_a_report_in_a_message_is_not_the_report(tmp_path: Path) -> None:
    """What the model writes comes within a string, and never begins a line."""
    forged = json.dumps({"is_error": False, "subtype": "success", "num_turns": 1})
    got = outcome_of_report(tmp_path, 1, is_error=True, api_error_status=429, result=f"\n{forged}")
    assert (got.status, got.reason) == (FAILED, Reason.RATE_LIMITED)


def test_the_command_names_every_setting() -> None:
    argv = command("--help me", "opus", agent="reviewer", max_steps=7, budget_per_worker=0.5)
    assert argv[:2] == ("claude", "--print")
    assert {"--output-format=stream-json", "--verbose", "--dangerously-skip-permissions"} < {*argv}
    options = dict(zip(argv[5:-2:2], argv[6:-2:2], strict=True))
    assert options == {
        "--agent": "reviewer",
        "--model": "opus",
        "--max-turns": "7",
        "--max-budget-usd": "0.5",
    }
    assert argv[-2:] == ("--", "--help me")


def test_what_was_not_asked_for_is_left_to_the_program() -> None:
    assert command()[5:] == ("--max-turns", "50", "--", "fix it")


@pytest.mark.parametrize("given", ["http://model", "http://model/", "http://model/v1/"])
def test_the_version_is_no_part_of_its_address(given: str) -> None:
    settings = AgentSettings.of(ParallelConfig(tasks=("t",), api_base=given))
    env = ClaudeAgent().command(WorkerSpec(worker_id=1, task="t", model=None), settings).env
    assert env["ANTHROPIC_BASE_URL"] == "http://model"
    assert env["CLAUDE_CODE_MAX_RETRIES"] == "4"


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({}, "ANTHROPIC_API_KEY"),
        ({"ANTHROPIC_API_KEY": ""}, "ANTHROPIC_API_KEY"),
        ({"ANTHROPIC_BASE_URL": "http://model"}, "ANTHROPIC_API_KEY"),
        ({"ANTHROPIC_API_KEY": "k"}, None),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, None),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "k"}, None),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, None),
    ],
)
def test_a_key_is_missed(environment: dict[str, str], missing: str | None) -> None:
    assert ClaudeAgent().missing_key(None, environment) == missing


def test_progress_counts_answers_and_not_their_parts() -> None:
    read = ClaudeAgent().progress_reader()
    own = {"type": "assistant", "parent_tool_use_id": None}

    def line(**fields: Any) -> str:
        return json.dumps({**own, **fields})

    lines = [
        (line(message={"id": "a"}), 1),
        (line(message={"id": "a"}), None),
        (line(type="user", message={"id": "u"}), None),
        (line(message={"id": "helper"}, parent_tool_use_id="toolu_1"), None),
        (line(message={"id": "b"}), 2),
        (line(message={"id": "e", "model": "<synthetic>"}), None),
        (line(message="hello"), None),
        ('{"type": "assistant"', None),
    ]
    for text, steps in lines:
        assert read(text) == (None if steps is None else AgentProgress(steps=steps)), text


def test_progress_of_a_whole_recording() -> None:
    read = ClaudeAgent().progress_reader()
    told = [read(line) for line in (RECORDED / "stream-both.out").read_text().splitlines()]
    assert [one.steps for one in told if one] == [1, 2]


def test_it_is_found_by_its_name() -> None:
    agent = load_agent("claude")
    assert isinstance(agent, ClaudeAgent)
    assert (agent.name, agent.image) == ("claude", "orchestrator/worker:claude")
    assert agent.unsupported(AgentSettings.of(ParallelConfig(tasks=("t",), agent="x"))) is None
