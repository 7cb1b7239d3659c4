"""Tests that apply to the adapters of all agent programs, with a row for each adapter.

Recorded output of the real programs is in `tests/data/agents/NAME/`; `outcomes.yaml` beside it has
the expected outcome of each recording. `test_NAME.py` tests what is particular to a program.
"""

from typing import Any

import pytest
import yaml

from orchestrator.agents import load_agent
from orchestrator.agents.programs.aider import AiderAgent
from orchestrator.agents.programs.architect import ArchitectAgent
from orchestrator.agents.programs.claude import ClaudeAgent
from orchestrator.agents.programs.codex import CodexAgent
from orchestrator.agents.programs.gemini import GeminiAgent
from orchestrator.agents.programs.mini import MiniAgent
from orchestrator.agents.programs.opencode import OpencodeAgent
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.results import Status
from orchestrator.config.settings.container import AGENT_CONFIG
from tests.support.agents import RECORDED, command, judge, settings

CLASSES: dict[str, type] = {
    "aider": AiderAgent,
    "architect": ArchitectAgent,
    "claude": ClaudeAgent,
    "codex": CodexAgent,
    "gemini": GeminiAgent,
    "mini": MiniAgent,
    "opencode": OpencodeAgent,
    "shell": ShellAgent,
}
TAKE_CONFIGURATION_FILES = {"architect"}
IMAGES = {"shell": "orchestrator/base:latest"}
IGNORED = {
    "aider": (".aider*",),
    "architect": (".architect/",),
    "claude": (".claude/settings.local.json",),
}

OUTCOMES: dict[str, dict[str, dict[str, Any]]] = {
    path.parent.name: yaml.safe_load(path.read_text())
    for path in sorted(RECORDED.glob("*/outcomes.yaml"))
}
RECORDINGS = [(agent, name) for agent, outcomes in OUTCOMES.items() for name in outcomes]


@pytest.mark.parametrize("agent", CLASSES)
def test_an_adapter_is_found_by_its_name(agent: str) -> None:
    found = load_agent(agent)

    assert type(found) is CLASSES[agent]
    assert found.name == agent
    assert found.image == IMAGES.get(agent, f"orchestrator/worker:{agent}")
    assert found.ignored_files == IGNORED.get(agent, ())


@pytest.mark.parametrize("agent", [agent for agent in CLASSES if agent != "shell"])
def test_every_recording_has_an_expected_outcome(agent: str) -> None:
    recorded = {path.name.partition(".")[0] for path in (RECORDED / agent).iterdir()}

    assert recorded - {"outcomes"} == OUTCOMES[agent].keys()


@pytest.mark.parametrize(("agent", "name"), RECORDINGS)
def test_recorded_output_gives_the_expected_outcome(agent: str, name: str) -> None:
    expected = OUTCOMES[agent][name]
    place = RECORDED / agent
    got = judge(agent, place / f"{name}.out", place / f"{name}.err", expected["exit_code"])

    cost = expected.get("cost")
    assert (got.status, got.reason) == (expected["status"], expected.get("reason"))
    assert (got.steps, got.tokens) == (expected.get("steps", 0), expected.get("tokens"))
    assert got.cost == (None if cost is None else pytest.approx(cost))
    assert got.message == expected.get("message")
    assert got.message is None or (got.message.isprintable() and len(got.message) <= 200)


@pytest.mark.parametrize(
    ("agent", "name"),
    [(agent, name) for agent, name in RECORDINGS if OUTCOMES[agent][name]["status"] == "success"],
)
def test_recorded_success_with_another_exit_code_is_a_failure(agent: str, name: str) -> None:
    place = RECORDED / agent
    for exit_code in (1, 2, 3, 137, 139):
        got = judge(agent, place / f"{name}.out", place / f"{name}.err", exit_code)
        assert (got.status, bool(got.reason)) == (Status.FAILED, True), exit_code


LAST_WORDS = {
    "aider": ("--message={task}",),
    "architect": ("--", "{task}"),
    "claude": ("--", "{task}"),
    "codex": ("--", "{task}"),
    "gemini": ("--prompt={task}",),
    "mini": ("-t", "{task}"),
}


@pytest.mark.parametrize("task", ["--help", "-", "--", "- a list\n- of things", "--model x"])
@pytest.mark.parametrize("agent", LAST_WORDS)
def test_a_task_that_begins_with_a_dash_is_an_argument(agent: str, task: str) -> None:
    words = tuple(word.format(task=task) for word in LAST_WORDS[agent])

    assert command(agent, task).argv[-len(words) :] == words


CLOUD = {"CLAUDE_CODE_USE_BEDROCK": "1"}


@pytest.mark.parametrize(
    ("agent", "model", "environment", "missing"),
    [
        ("aider", None, {}, "OPENAI_API_KEY"),
        ("aider", None, {"AIDER_MODEL": "claude-x"}, "ANTHROPIC_API_KEY"),
        ("aider", "gemini/x", {"GEMINI_API_KEY": "k"}, None),
        ("claude", None, {}, "ANTHROPIC_API_KEY"),
        ("claude", None, {"ANTHROPIC_API_KEY": ""}, "ANTHROPIC_API_KEY"),
        ("claude", None, {"ANTHROPIC_BASE_URL": "http://model"}, "ANTHROPIC_API_KEY"),
        ("claude", None, {"ANTHROPIC_API_KEY": "k"}, None),
        ("claude", None, {"ANTHROPIC_AUTH_TOKEN": "k"}, None),
        ("claude", None, {"CLAUDE_CODE_OAUTH_TOKEN": "k"}, None),
        ("claude", None, CLOUD, None),
        ("codex", None, {}, "OPENAI_API_KEY"),
        ("codex", None, {"OPENAI_API_KEY": "o"}, None),
        ("codex", None, {"CODEX_API_KEY": "c"}, None),
        ("gemini", None, {}, "GEMINI_API_KEY"),
        ("gemini", None, {"GEMINI_API_KEY": "k"}, None),
        ("gemini", None, {"GOOGLE_GEMINI_BASE_URL": "http://x"}, None),
        ("mini", None, {}, "OPENAI_API_KEY"),
        ("mini", None, {"MSWEA_MODEL_NAME": "claude-x"}, "ANTHROPIC_API_KEY"),
        ("mini", "gemini/x", {"GEMINI_API_KEY": "k"}, None),
        ("opencode", "gpt-4o", {"ANTHROPIC_API_KEY": "k"}, "OPENAI_API_KEY"),
        ("opencode", None, {"ANTHROPIC_API_KEY": "k"}, None),
        ("opencode", "google/g", {"GOOGLE_GENERATIVE_AI_API_KEY": "k"}, None),
        ("opencode", "mine/llama", {}, None),
        ("shell", None, {}, None),
    ],
)
def test_missing_key_names_its_variable(
    agent: str, model: str | None, environment: dict[str, str], missing: str | None
) -> None:
    assert load_agent(agent).missing_key(model, environment) == missing


NO_PROFILES = "`--agent review` (it has no profiles)"
NO_COST = "`--budget-per-worker` (it does not report its cost)"
PROFILE = {"agent": "review"}
BUDGET = {"budget_per_worker": 1}


@pytest.mark.parametrize(
    ("agent", "asked", "refused"),
    [
        ("aider", {**PROFILE, **BUDGET, "max_steps": 2}, {NO_PROFILES}),
        ("aider", {}, set()),
        ("architect", {**PROFILE, **BUDGET, "max_steps": 2}, set()),
        ("claude", {**PROFILE, **BUDGET, "max_steps": 2}, set()),
        ("codex", {}, set()),
        ("codex", {"max_steps": 7}, set()),
        ("codex", PROFILE, {NO_PROFILES}),
        ("codex", BUDGET, {NO_COST}),
        ("gemini", {}, set()),
        ("gemini", {**PROFILE, **BUDGET}, {NO_PROFILES, NO_COST}),
        ("mini", {**PROFILE, **BUDGET, "max_steps": 2}, {NO_PROFILES}),
        ("opencode", {**PROFILE, **BUDGET, "max_steps": 2}, set()),
        ("shell", {**PROFILE, **BUDGET}, set()),
        ("shell", {"max_steps": 2}, {"`--max-steps` (it does not report its steps)"}),
    ],
)
def test_unsupported_settings_are_named(
    agent: str, asked: dict[str, Any], refused: set[str]
) -> None:
    said = load_agent(agent).unsupported(settings(**asked))

    assert (said is None) == (not refused)
    assert all(words in (said or "") for words in refused)
    if len(refused) == 1:
        assert {said} == refused


@pytest.mark.parametrize("agent", CLASSES)
def test_configuration_file_is_passed_on_or_refused(agent: str) -> None:
    given: dict[str, Any] = {"agent_config": "/home/ann/agent.yaml"}
    said = load_agent(agent).unsupported(settings(**given))
    started = command(agent, **given)
    words = (*started.argv, *started.env.values())

    refused = "`--agent-config` (it is started without a configuration file)"
    assert said == (None if agent in TAKE_CONFIGURATION_FILES else refused)
    assert (AGENT_CONFIG in words) == (agent in TAKE_CONFIGURATION_FILES)
    assert AGENT_CONFIG not in command(agent).argv


@pytest.mark.parametrize("agent", ["aider", "mini"])
def test_api_base_reaches_every_provider_of_litellm(agent: str) -> None:
    env = command(agent, api_base="http://gateway:4000").env
    names = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_API_BASE", "COHERE_API_BASE")

    assert {env.get(name) for name in names} == {"http://gateway:4000"}
    assert "OPENAI_API_BASE" not in command(agent).env


@pytest.mark.parametrize(
    ("agent", "name"), [("aider", "AIDER_MODEL"), ("mini", "MSWEA_MODEL_NAME")]
)
def test_default_model_can_be_overridden(agent: str, name: str) -> None:
    assert command(agent).default_env == {name: "gpt-4o"}
