"""Tests of the codex adapter alone; `test_adapters.py` has those of all adapters."""

import json
import os
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import AgentOutcome, AgentProgress
from orchestrator.agents.programs.codex import CodexAgent
from orchestrator.base.results import Reason, Status
from tests.support.agents import command, json_text, judge_text

SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED


def outcome_of_end(tmp_path: Path, exit_code: int, **end: Any) -> AgentOutcome:
    return judge_text("codex", tmp_path, json_text(end), exit_code=exit_code)


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
def test_failed_turn_has_a_reason(tmp_path: Path, message: object, reason: Reason) -> None:
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
def test_outcome_depends_on_several_fields(
    tmp_path: Path, exit_code: int, end: dict[str, Any], status: Status, reason: Reason | None
) -> None:
    got = outcome_of_end(tmp_path, exit_code, **end)
    assert (got.status, got.reason) == (status, reason)


def test_command_defines_a_provider() -> None:
    argv = command("codex", "-", "gpt-5", api_base='http://model/"v1"').argv
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


def test_default_provider_is_openai() -> None:
    argv = command("codex").argv
    (address,) = (
        word for word in argv if word.startswith("model_providers") and "base_url" in word
    )
    assert address.endswith('.base_url="https://api.openai.com/v1"')
    assert any(word.endswith('.name="OpenAI"') for word in argv)
    assert "--model" not in argv


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"OPENAI_API_KEY": "o"}, "o"),
        ({"CODEX_API_KEY": "c"}, "c"),
        ({"OPENAI_API_KEY": "o", "CODEX_API_KEY": "c"}, "c"),
        ({}, "none"),
    ],
)
def test_key_is_read_from_two_variables(
    tmp_path: Path, environment: dict[str, str], key: str
) -> None:
    program = tmp_path / "codex"
    program.write_text('#!/bin/sh\nprintf "%s|%s" "$CODEX_API_KEY" "$*"\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **environment}
    argv = command("codex", "a 'b' $c").argv
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{key}|exec --json ")
    assert done.stdout.endswith(" -- a 'b' $c")
    assert CodexAgent().missing_key(None, environment) == (
        None if environment else "OPENAI_API_KEY"
    )


@pytest.mark.parametrize(
    ("url", "api_base", "used", "name"),
    [
        (None, None, "https://api.openai.com/v1", "OpenAI"),
        ("", None, "https://api.openai.com/v1", "OpenAI"),
        ("http://own.example/v1", None, "http://own.example/v1", "orchestrator"),
        ("http://own.example/v1", "http://chosen.example", "http://chosen.example", "orchestrator"),
    ],
)
def test_base_url_is_read_from_the_variable_unless_it_is_chosen(
    tmp_path: Path, url: str | None, api_base: str | None, used: str, name: str
) -> None:
    program = tmp_path / "codex"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"} | (
        {} if url is None else {"OPENAI_BASE_URL": url}
    )
    task = 'model_providers.orchestrator.name="OpenAI" a  b'
    argv = command("codex", task, api_base=api_base).argv
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    given = tomllib.loads("\n".join(word for flag, word in pairwise(words) if flag == "-c"))
    provider = given["model_providers"]["orchestrator"]
    assert (provider["base_url"], provider["name"]) == (used, name)
    assert words[-2:] == ["--", task]


def test_progress_counts_steps_not_messages() -> None:
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
