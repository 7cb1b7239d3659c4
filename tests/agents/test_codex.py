"""The codex adapter, against everything the real program was seen to print."""

import json
import os
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentOutcome, AgentOutput, AgentProgress, AgentSettings
from orchestrator.agents.codex import CodexAgent
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

RECORDED = Path(__file__).parents[1] / "data" / "agents" / "codex"
SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED
DONE = "Done: wrote hello.txt"
BUSY = "We\u2019re currently experiencing high demand, which may cause temporary errors."
URL = "url: http://172.17.0.1:18777/v1/responses"

# name: exit code, then status, reason, steps, tokens, message.
OUTCOMES: dict[str, tuple[int, Status, Reason | None, int, int | None, str]] = {
    "ok": (0, SUCCESS, None, 1, 2100, DONE),
    "baseflag": (0, SUCCESS, None, 1, 2100, DONE),
    "oaikeyonly": (0, SUCCESS, None, 1, 2100, DONE),
    "sandbox": (0, SUCCESS, None, 1, 2100, DONE),
    "worktree": (0, SUCCESS, None, 1, 2100, DONE),
    "both": (0, SUCCESS, None, 2, 4037, "Done."),
    "401": (1, FAILED, Reason.AUTH, 0, None,
            f"unexpected status 401 Unauthorized: Incorrect API key provided, {URL}"),
    "403": (1, FAILED, Reason.AUTH, 0, None,
            f"unexpected status 403 Forbidden: Forbidden, {URL}"),
    "nokey": (1, FAILED, Reason.AUTH, 0, None, "Missing environment variable: `OPENAI_API_KEY`."),
    "429": (1, FAILED, Reason.RATE_LIMITED, 0, None,
            "exceeded retry limit, last status: 429 Too Many Requests"),
    "500": (1, FAILED, Reason.AGENT_ERROR, 0, None, BUSY),
    "err": (1, FAILED, Reason.AGENT_ERROR, 0, None, BUSY),
    "noconn": (1, FAILED, Reason.AGENT_ERROR, 0, None, "Connection failed: error sending request"),
    "nonet": (1, FAILED, Reason.AGENT_ERROR, 0, None, "Connection failed: error sending request"),
    "badflag": (2, FAILED, Reason.AGENT_ERROR, 0, None,
                "error: unexpected argument '--bogus' found"),
    # It waited for a network, as it does for ever unless it is told not to.
    "envbase": (124, FAILED, Reason.AGENT_ERROR, 0, None,
                "2026-11-21T00:07:38.356417Z ERROR codex_api::endpoint::responses_websocket: "
                "failed to connect to Responses WebSocket stage=Unknown"),
    "killed": (137, FAILED, Reason.AGENT_ERROR, 10, None, "ended by SIGKILL"),
    "sigterm": (137, FAILED, Reason.AGENT_ERROR, 1, None, "ended by SIGKILL"),
    "sigterm-init": (143, FAILED, Reason.AGENT_ERROR, 0, None, "ended by SIGTERM"),
}  # fmt: skip


def outcome_of(stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return CodexAgent().outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def outcome_of_end(tmp_path: Path, exit_code: int, **end: Any) -> AgentOutcome:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text(json.dumps(end) + "\n")
    err.write_text("")
    return outcome_of(out, err, exit_code)


def settings(**asked: Any) -> AgentSettings:
    return AgentSettings.of(ParallelConfig(tasks=("t",), **asked))


def command(task: str = "fix it", model: str | None = None, **asked: Any) -> tuple[str, ...]:
    spec = WorkerSpec(worker_id=1, task=task, model=model)
    return CodexAgent().command(spec, settings(**asked)).argv


def test_every_recording_is_expected_to_mean_something() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_output_is_understood(name: str) -> None:
    exit_code, *expected = OUTCOMES[name]
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", exit_code)
    assert [got.status, got.reason, got.steps, got.tokens, got.message] == expected
    assert got.cost is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("unexpected status 401 Unauthorized: quota exceeded", Reason.AUTH),
        ("unexpected status 404 Not Found: your usage limit", Reason.AGENT_ERROR),
        ("exceeded retry limit, last status: 503 Unavailable", Reason.AGENT_ERROR),
        ("You've hit your usage limit. Try again later.", Reason.RATE_LIMITED),
        ("Quota exceeded. Check your plan and billing details.", Reason.RATE_LIMITED),
        ("Codex ran out of room in the model's context window.", Reason.CONTEXT_FULL),
        ("nobody knows", Reason.AGENT_ERROR),
        (None, Reason.AGENT_ERROR),
        (5, Reason.AGENT_ERROR),
    ],
)
def test_a_failed_turn_says_why(tmp_path: Path, message: object, reason: Reason) -> None:
    got = outcome_of_end(tmp_path, 1, type="turn.failed", error={"message": message})
    assert (got.status, got.reason) == (FAILED, reason)
    assert got.message == (message if isinstance(message, str) else "exited with 1")


@pytest.mark.parametrize(
    ("exit_code", "end", "status", "reason"),
    [
        (1, {"type": "turn.completed", "usage": {}}, FAILED, Reason.AGENT_ERROR),
        (0, {"type": "turn.failed", "error": "no"}, FAILED, Reason.AGENT_ERROR),
        (0, {"type": "turn.done", "usage": {}}, FAILED, Reason.AGENT_ERROR),
        (0, {"type": "turn.completed", "usage": None}, SUCCESS, None),
        (0, {"type": "turn.started"}, PARTIAL, Reason.NO_REPORT),
    ],
)
def test_no_field_alone_decides(
    tmp_path: Path, exit_code: int, end: dict[str, Any], status: Status, reason: Reason | None
) -> None:
    got = outcome_of_end(tmp_path, exit_code, **end)
    assert (got.status, got.reason) == (status, reason)


def test_the_command_sets_a_provider_of_its_own() -> None:
    argv = command("-", "gpt-5", api_base='http://model/"v1"')
    begin = argv.index("codex")
    assert argv[begin : begin + 3] == ("codex", "exec", "--json")
    given = [word for flag, word in pairwise(argv) if flag == "-c"]
    config = tomllib.loads(
        "\n".join(word for word in given if "=" in word and "export" not in word)
    )
    provider = config["model_providers"][config["model_provider"]]
    assert (provider["name"], provider["base_url"]) == ("orchestrator", 'http://model/"v1"')
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (2, 3)
    assert config["features"] == {"unbounded_connection_retries": False}
    assert argv[-4:] == ("--model", "gpt-5", "--", "-")


def test_without_a_server_of_one_s_own_it_is_openai() -> None:
    (address,) = (word for word in command() if "base_url" in word)
    assert address.endswith('.base_url="https://api.openai.com/v1"')
    assert any(word.endswith('.name="OpenAI"') for word in command())
    assert "--model" not in command()


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"OPENAI_API_KEY": "o"}, "o"),
        ({"CODEX_API_KEY": "c"}, "c"),
        ({"OPENAI_API_KEY": "o", "CODEX_API_KEY": "c"}, "c"),
        ({}, "none"),
    ],
)
def test_the_key_has_two_names(tmp_path: Path, environment: dict[str, str], key: str) -> None:
    program = tmp_path / "codex"
    program.write_text('#!/bin/sh\nprintf "%s|%s" "$CODEX_API_KEY" "$*"\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **environment}
    done = subprocess.run(command("a 'b' $c"), env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{key}|exec --json ")
    assert done.stdout.endswith(" -- a 'b' $c")
    assert CodexAgent().missing_key(None, environment) == (
        None if environment else "OPENAI_API_KEY"
    )


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({}, None),
        ({"max_steps": 7}, None),
        ({"agent": "review"}, "`--agent review` (it has no profiles)"),
        ({"budget_per_worker": 1}, "`--budget-per-worker` (it does not report its cost)"),
    ],
)
def test_what_it_cannot_keep_is_refused(asked: dict[str, Any], refused: str | None) -> None:
    assert CodexAgent().unsupported(settings(**asked)) == refused


def test_progress_counts_each_step_once_and_no_words() -> None:
    read = CodexAgent().progress_reader()

    def line(event: str, number: object, kind: str) -> str:
        return json.dumps({"type": f"item.{event}", "item": {"id": number, "type": kind}})

    lines = [
        ('{"type": "turn.started"}', None),
        (line("completed", "item_0", "error"), None),
        (line("started", "item_1", "command_execution"), 1),
        (line("started", "item_2", "file_change"), 2),
        (line("updated", "item_3", "command_execution"), None),
        (line("completed", "item_2", "file_change"), None),
        (line("completed", "item_1", "command_execution"), None),
        (line("completed", "item_3", "agent_message"), None),
        (line("completed", "item_4", "mcp_tool_call"), 3),
        (line("completed", ["item_4"], "mcp_tool_call"), 4),
        ('{"type": "item.started", "item": "item_5"}', None),
        ('{"type": "item.started"', None),
    ]
    for text, steps in lines:
        assert read(text) == (None if steps is None else AgentProgress(steps=steps)), text


def test_it_is_found_by_its_name() -> None:
    agent = load_agent("codex")
    assert isinstance(agent, CodexAgent)
    assert (agent.name, agent.image) == ("codex", "orchestrator/worker:codex")
