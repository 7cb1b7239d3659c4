"""Tests of which keys the broker holds, and what workers get instead."""

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.settings_check import user_variables
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.network.broker.keys import PROVIDERS, Keys, Provider, choose_keys, without_keys
from tests.support.errors import raises

URL = "http://broker.internal:8080"
OPENAI = {"OPENAI_API_KEY": "sk-openai"}


def chosen(agent: str, given: dict[str, str], api_base: str | None = None) -> Keys:
    """Return what the broker holds for a worker with the default model of a program."""
    program = load_agent(agent)
    return choose_keys(
        program.inherited_env,
        given,
        api_base=api_base,
        key_of_model=program.missing_key(None, {}),
    )


@pytest.mark.parametrize(
    ("agent", "name", "provider", "end"),
    [
        ("architect", "OPENAI_API_KEY", "openai", "openai/v1"),
        ("aider", "OPENAI_API_KEY", "openai", "openai/v1"),
        ("mini", "OPENAI_API_KEY", "openai", "openai/v1"),
        ("codex", "OPENAI_API_KEY", "openai", "openai/v1"),
        ("codex", "CODEX_API_KEY", "openai", "openai/v1"),
        ("claude", "ANTHROPIC_API_KEY", "anthropic", "anthropic"),
        ("claude", "ANTHROPIC_AUTH_TOKEN", "anthropic", "anthropic"),
        ("gemini", "GEMINI_API_KEY", "gemini", "gemini/v1beta"),
    ],
)
def test_programs_get_a_token_and_a_base_url(
    agent: str, name: str, provider: str, end: str
) -> None:
    keys = chosen(agent, {name: "the-key"})
    assert keys.upstreams[provider].key == "the-key"
    assert keys.upstreams[provider].url.startswith("https://")
    assert keys.api_base == end
    variables = keys.environment(URL, "token")
    assert variables[name] == "token"
    assert "the-key" not in str(variables)
    assert f"{URL}/{end}" in variables.values()


def test_base_url_of_the_user_is_where_the_broker_connects() -> None:
    for url, upstream, end in (
        ("http://models.example:8080/v1", "http://models.example:8080", "openai/v1"),
        ("http://models.example/v1/", "http://models.example", "openai/v1"),
        ("https://models.example/secret-path", "https://models.example/secret-path", "openai"),
    ):
        keys = chosen("architect", {**OPENAI, "OPENAI_API_BASE": url})
        assert keys.upstreams["openai"].url == upstream
        variables = keys.environment(URL, "token")
        assert variables["OPENAI_BASE_URL"] == variables["OPENAI_API_BASE"] == f"{URL}/{end}"


PROVIDER_OF = {
    "architect": "OPENAI_API_KEY", "aider": "OPENAI_API_KEY", "mini": "OPENAI_API_KEY",
    "codex": "OPENAI_API_KEY", "opencode": "OPENAI_API_KEY", "shell": "OPENAI_API_KEY",
    "claude": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY",
}  # fmt: skip
"""A key of each program."""


@pytest.mark.parametrize("agent", PROVIDER_OF)
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda one: one.name)
def test_every_base_url_of_the_caller_is_where_the_broker_connects(
    agent: str, provider: Provider
) -> None:
    config = ParallelConfig.model_validate({"agent_cli": agent, "tasks": ["a"]}).model_copy(
        update={"isolation": Isolation(keys="broker")}
    )
    key = provider.keys[0]
    for name in provider.bases:
        environ = {PROVIDER_OF[agent]: "the-key", key: "the-key", name: "http://own.example"}
        program = load_agent(agent)
        given = user_variables(config, program, environ)
        # `shell` reads no variables, so the key must be named.
        keys = choose_keys(program.inherited_env, {**given, key: "the-key"}, api_base=None,
                           key_of_model=None)  # fmt: skip
        assert keys.upstreams[provider.name].url == "http://own.example", name


def test_base_urls_have_the_version_that_each_program_expects() -> None:
    given = {"GEMINI_API_KEY": "a", "ANTHROPIC_API_KEY": "b", "DEEPSEEK_API_KEY": "c"}
    variables = choose_keys((), given, api_base=None, key_of_model=None).environment(URL, "t")
    # Gemini CLI appends the version of the API itself, LiteLLM does not.
    assert variables["GOOGLE_GEMINI_BASE_URL"] == f"{URL}/gemini"
    assert variables["GEMINI_API_BASE"] == f"{URL}/gemini/v1beta"
    assert variables["ANTHROPIC_BASE_URL"] == f"{URL}/anthropic"
    assert variables["DEEPSEEK_API_BASE"] == f"{URL}/deepseek"
    for name, url in (
        ("GOOGLE_GEMINI_BASE_URL", "http://own.example"),
        ("GEMINI_API_BASE", "http://own.example/v1beta"),
    ):
        own = choose_keys((), {**given, name: url}, api_base=None, key_of_model="GEMINI_API_KEY")
        assert own.upstreams["gemini"].url == "http://own.example"
        assert own.api_base == "gemini/v1beta"
        variables = own.environment(URL, "t")
        assert variables["GOOGLE_GEMINI_BASE_URL"] == f"{URL}/gemini"
        assert variables["GEMINI_API_BASE"] == f"{URL}/gemini/v1beta"


def test_server_for_all_models_of_architect_is_where_the_broker_connects() -> None:
    keys = chosen("architect", {**OPENAI, "ARCHITECT_API_BASE": "http://own.example/v1"})
    assert (keys.upstreams["api"].url, keys.api_base) == ("http://own.example", "api/v1")
    assert keys.upstreams["api"].key == "sk-openai"


@pytest.mark.parametrize(
    ("agent", "name"),
    [("claude", "ANTHROPIC_AUTH_TOKEN"), ("codex", "CODEX_API_KEY"), ("codex", "OPENAI_API_KEY")],
)
def test_own_server_gets_the_key_under_any_of_its_names(agent: str, name: str) -> None:
    keys = chosen(agent, {name: "the-key"}, "http://own.example/v1")
    assert keys.upstreams["api"].key == "the-key"
    assert keys.environment(URL, "token") == {name: "token"}


def test_each_provider_has_its_own_key() -> None:
    given = {**OPENAI, "ANTHROPIC_API_KEY": "sk-ant", "DEEPSEEK_API_KEY": "sk-deep"}
    keys = chosen("architect", given)
    held = {name: upstream.key for name, upstream in keys.upstreams.items()}
    assert held == {"openai": "sk-openai", "anthropic": "sk-ant", "deepseek": "sk-deep"}


def test_own_server_gets_the_key_of_the_model_alone() -> None:
    given = {**OPENAI, "ANTHROPIC_API_KEY": "sk-ant"}
    for agent, key in (("architect", "sk-openai"), ("claude", "sk-ant")):
        keys = chosen(agent, given, "http://models.example:8080/v1")
        (upstream,) = keys.upstreams.values()
        assert (upstream.url, upstream.key) == ("http://models.example:8080", key)
        assert keys.api_base == "api/v1"
    without = chosen("architect", {}, "http://models.example/v1")
    assert without.upstreams["api"].key is None
    assert without.environment(URL, "token")["OPENAI_API_KEY"] == "token"


def test_worker_gets_no_key_and_no_base_url() -> None:
    program = load_agent("architect").inherited_env
    env = {
        **OPENAI,
        "OPENAI_BASE_URL": "https://a.example",
        "MISTRAL_API_KEY": "sk-mistral",
        "GROQ_API_BASE": "https://b.example",
        "ARCHITECT_MODEL": "gpt-4o",
        "MY_API_KEY": "of the project",
    }
    assert without_keys(env, program) == {
        "ARCHITECT_MODEL": "gpt-4o",
        "MY_API_KEY": "of the project",
    }
    claude = load_agent("claude").inherited_env
    private = {"CLAUDE_CODE_OAUTH_TOKEN": "x", "ANTHROPIC_CUSTOM_HEADERS": "y"}
    assert without_keys(private, claude) == {}
    # Also keys that only `--env` names.
    assert without_keys(OPENAI, ()) == {}


def test_key_that_cannot_be_held_is_refused() -> None:
    for agent, given in (
        ("claude", {"CLAUDE_CODE_OAUTH_TOKEN": "x"}),
        ("architect", {}),
        ("architect", {"ANTHROPIC_API_KEY": "the model is OpenAI's"}),
        ("opencode", {**OPENAI, "GOOGLE_GENERATIVE_AI_API_KEY": "x"}),
        ("shell", {}),
    ):
        with raises("broker.key-missing"):
            chosen(agent, given)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:password@models.example/v1",
        "https://user@models.example",
        "https://models.example/v1?key=secret",
        "ftp://models.example",
        "models.example/v1",
        "http://",
        "http://a:99999999/v1",
        "http://[::1",
    ],
)
def test_base_url_with_a_secret_is_refused(url: str) -> None:
    with raises("broker.base-url") as caught:
        chosen("architect", OPENAI, url)
    assert "secret" not in caught.value.message
    assert "password" not in caught.value.message
