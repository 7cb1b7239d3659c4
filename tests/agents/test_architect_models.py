"""How `architect` is told about models, so that a name works as its vendor writes it."""

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
def test_names_the_provider_where_the_program_cannot_find_it(
    asked: str | None, given: str | None
) -> None:
    assert _model(_command(asked)) == given


def test_api_base_reaches_deepseek_too() -> None:
    command = _command("deepseek-chat", api_base="http://gateway:4000")

    assert command.env["DEEPSEEK_API_BASE"] == "http://gateway:4000"
    assert "http://gateway:4000" in command.argv


def test_deepseek_keeps_its_own_address_otherwise() -> None:
    assert "DEEPSEEK_API_BASE" not in _command("deepseek-chat").env


def test_new_anthropic_models_may_answer_at_length() -> None:
    assert int(_command("claude-sonnet-4-6").env["DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS"]) > 4096
