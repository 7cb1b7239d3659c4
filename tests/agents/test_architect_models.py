"""Tests of the model names that are passed to `architect`."""

import pytest

from orchestrator.agents.base import AgentCommand
from tests.support.agents import command


def _command(model: str | None, *, api_base: str | None = None) -> AgentCommand:
    return command("architect", model=model, api_base=api_base)


def _model(command: AgentCommand) -> str | None:
    argv = command.argv
    return argv[argv.index("--model") + 1] if "--model" in argv else None


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("gpt-4o", "gpt-4o"),
        ("claude-sonnet-4-6", "anthropic/claude-sonnet-4-6"),
        ("deepseek-chat", "deepseek/deepseek-chat"),
        ("openrouter/claude-sonnet-4-6", "openrouter/claude-sonnet-4-6"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet@20240620"),
        ("my-claude-model", "my-claude-model"),
        (None, None),
    ],
)
def test_provider_is_added_to_some_model_names(asked: str | None, given: str | None) -> None:
    assert _model(_command(asked)) == given


def test_api_base_is_passed_for_deepseek() -> None:
    command = _command("deepseek-chat", api_base="http://gateway:4000")

    assert command.env["DEEPSEEK_API_BASE"] == "http://gateway:4000"
    assert "http://gateway:4000" in command.argv


def test_deepseek_default_url_is_kept_without_api_base() -> None:
    assert "DEEPSEEK_API_BASE" not in _command("deepseek-chat").env


def test_output_limit_is_raised_for_new_anthropic_models() -> None:
    assert int(_command("claude-sonnet-4-6").env["DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS"]) > 4096
