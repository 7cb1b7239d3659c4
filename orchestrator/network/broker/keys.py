"""Decide which API keys a run's broker holds, and which variables workers get instead of keys."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.redact import SHORTEST
from orchestrator.network.broker.grant import Repository, Upstream

CUSTOM = "api"
"""Name of the only API, for all models, if the user chose a base URL."""
_OPENAI_VERSION = "/v1"
_GEMINI_VERSION = "/v1beta"
_VERSION = re.compile(r"/v1(?:beta)?$")


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A model provider, with the environment variables that agent programs read for it."""

    name: str
    url: str
    """Base URL of the API, without a version."""
    version: str = ""
    """End of the base URL that programs expect, such as `/v1`; empty if they expect none."""
    keys: tuple[str, ...]
    """Variables with the API key; the first variable that is set is used."""
    bases: tuple[str, ...]
    """Variables with the base URL of the API."""
    without_version: frozenset[str] = frozenset()
    """Variables with the base URL to which programs append the version themselves."""


PROVIDERS = (
    Provider(
        name="openai",
        url="https://api.openai.com",
        version=_OPENAI_VERSION,
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        bases=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ),
    Provider(
        name="anthropic",
        url="https://api.anthropic.com",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        bases=("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    ),
    Provider(
        name="gemini",
        url="https://generativelanguage.googleapis.com",
        version=_GEMINI_VERSION,
        keys=("GEMINI_API_KEY",),
        bases=("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
        without_version=frozenset({"GOOGLE_GEMINI_BASE_URL"}),
    ),
    Provider(
        name="deepseek",
        url="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        bases=("DEEPSEEK_API_BASE",),
    ),
)
BASE_URLS = tuple(base for provider in PROVIDERS for base in provider.bases)
"""All variables with the base URL of a provider's API."""
_KEYS = tuple(key for provider in PROVIDERS for key in provider.keys)
_ENDINGS = ("_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN", "_CUSTOM_HEADERS")
_BASES = ("_API_BASE", "_BASE_URL")
_GIT_USER = "x-access-token"
"""User name sent with a token for a git host; GitHub, GitLab, Gitea and others accept any name."""
_BASE_OF_ALL = "ARCHITECT_API_BASE"
"""Variable in which `architect` finds the base URL of all models."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The API keys that the broker holds for a worker, and the variables that replace them."""

    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    """Address and key of each API, by the API's name."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the variables that get the worker's token in place of a key, by the API's name."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """Last part of the base URL in each variable, such as `openai/v1`: the API's name and version.
    """
    api_base: str | None = None
    """Last part of the base URL for a program that gets the URL by a command line option."""
    repositories: tuple[Repository, ...] = ()
    """Private repositories that the worker may read."""

    def environment(self, url: str, token: str) -> dict[str, str]:
        """Return the variables that a worker gets in place of variables with API keys."""
        tokens = dict.fromkeys((name for names in self.names.values() for name in names), token)
        return tokens | {name: f"{url}/{end}" for name, end in self.bases.items()}


def readable_repositories(
    listed: Iterable[tuple[str, str]], given: Mapping[str, str]
) -> Iterator[Repository]:
    """Yield the private repositories that a worker may read, with their tokens.

    Args:
        listed: URLs of repositories, each with the name of the variable that holds its token.
        given: The user's environment variables.

    Raises:
        ConfigError: A variable for a token is not set.
    """
    for url, variable in listed:
        token = given.get(variable, "").strip()
        if len(token) < SHORTEST:
            raise ConfigError(
                f"`--git-read`: variable `{variable}` is not set to a token",
                key="git-token.missing",
                hint=f"set `{variable}` to the token of the git host, or to `USER:TOKEN`",
            )
        yield Repository(url=url, key=token if ":" in token else f"{_GIT_USER}:{token}")


def without_keys(env: Mapping[str, str], program: Iterable[str]) -> dict[str, str]:
    """Return the variables that a worker may see: without API keys and base URLs of APIs.

    Args:
        env: All variables that the worker would have.
        program: The variables that the agent program reads.
    """
    ours = (name for provider in PROVIDERS for name in (*provider.keys, *provider.bases))
    # protection: keys-are-removed-from-variables-of-workers
    # protection: other-keys-of-agent-program-are-removed
    private = {*ours, *(name for name in program if name.endswith((*_ENDINGS, *_BASES)))}
    return {name: value for name, value in env.items() if name not in private}


def choose_keys(
    program: Iterable[str],
    given: Mapping[str, str],
    *,
    api_base: str | None,
    key_of_model: str | None,
) -> Keys:
    """Choose the API keys that the broker holds for a worker, and the variables that replace them.

    Args:
        program: The variables that the agent program reads.
        given: The variables that the worker would have without a broker.
        api_base: The base URL that the user chose for all models.
        key_of_model: The variable with the key that the worker's model needs; None if unknown.

    Raises:
        ConfigError: A base URL cannot be used, or no variable contains a key.
    """
    known = tuple(program)
    chosen = api_base or given.get(_BASE_OF_ALL)
    if chosen:
        return _custom(known, given, chosen, key_of_model)
    return _by_provider(given, key_of_model)


def takes_keys(program: Iterable[str], given: Mapping[str, str]) -> bool:
    """Return whether an agent program reads API keys of models, or the user passes on such a key.

    Args:
        program: The variables that the agent program reads.
        given: The variables that the worker would have without a broker.
    """
    return any(name.endswith(_ENDINGS) for name in program) or any(map(given.get, _KEYS))


def _custom(
    program: tuple[str, ...], given: Mapping[str, str], api_base: str, key_of_model: str | None
) -> Keys:
    candidates = [name for name in _KEYS if name in program or name in given]
    provider = next((provider for provider in PROVIDERS if key_of_model in provider.keys), None)
    if provider is not None:
        candidates = [name for name in provider.keys if name in candidates]
    elif key_of_model is not None:
        candidates = [key_of_model]
    held = next((name for name in candidates if given.get(name)), None)
    url, version = _parts(api_base)
    return Keys(
        upstreams={CUSTOM: Upstream(url=url, key=None if held is None else given[held])},
        # A program may refuse to start without any key, even if the server needs none.
        names={CUSTOM: tuple(candidates) if held is None else (held,)},
        # The adapter of the program passes the base URL on, in whatever form the program needs it.
        api_base=f"{CUSTOM}{version}",
    )


def _by_provider(given: Mapping[str, str], key_of_model: str | None) -> Keys:
    upstreams: dict[str, Upstream] = {}
    names: dict[str, tuple[str, ...]] = {}
    bases: dict[str, str] = {}
    api_base = None
    for provider in PROVIDERS:
        held = [name for name in provider.keys if given.get(name)]
        if not held:
            continue
        url, version = _base_of(provider, given)
        upstreams[provider.name] = Upstream(url=url, key=given[held[0]])
        names[provider.name] = (held[0],)
        bases |= {
            name: f"{provider.name}{'' if name in provider.without_version else version}"
            for name in provider.bases
        }
        if key_of_model in provider.keys:
            # Not every program reads a variable with its base URL.
            api_base = f"{provider.name}{version}"
    if not upstreams or not (key_of_model is None or api_base is not None):
        raise ConfigError(
            "`--keys broker`: the key of the worker's model is not set, or cannot be held",
            key="broker.key-missing",
            hint=f"the broker can hold {', '.join(f'`{name}`' for name in _KEYS)}; with other "
            "keys, and with tokens of subscriptions, use `--keys env`",
        )
    return Keys(upstreams=upstreams, names=names, bases=bases, api_base=api_base)


def _base_of(provider: Provider, given: Mapping[str, str]) -> tuple[str, str]:
    """Return the base URL of a provider's API without its version, and the version."""
    chosen = next((name for name in provider.bases if given.get(name)), None)
    if chosen is None:
        return provider.url, provider.version
    url, version = _parts(given[chosen])
    return url, provider.version if chosen in provider.without_version else version


def _parts(url: str) -> tuple[str, str]:
    """Split a base URL into the part before its version, and the version at its end.

    Raises:
        ConfigError: The URL does not use HTTP, or contains a password or parameters.
    """
    if not _is_usable(url):
        raise ConfigError(
            "`--keys broker`: the base URL of `--api-base`, or of a variable such as "
            "`OPENAI_BASE_URL`, cannot be used",
            key="broker.base-url",
            hint="use a URL such as `https://HOST/v1`, without a password and without `?`; set "
            "the key in its own variable",
        )
    base = url.rstrip("/")
    start = _VERSION.sub("", base)
    return start, base[len(start) :]


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return False
    except ValueError:
        return False
    # protection: base-urls-with-password-are-refused
    return not (parts.username or parts.password or parts.query or parts.fragment)
