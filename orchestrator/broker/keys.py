"""Decide which keys a run's broker holds, and which variables a worker gets instead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from orchestrator.broker.grant import Upstream
from orchestrator.errors import ConfigError

CUSTOM = "api"
"""Name of the API whose base URL the user chose for all models."""
_VERSION = "/v1"


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A provider of models, with the variables that agent programs read."""

    name: str
    url: str
    """Base URL of the API, without a version."""
    version: str = ""
    """End of the base URL that programs expect, such as `/v1`; empty if they expect none."""
    keys: tuple[str, ...]
    """Variables with the key; the first that is set is used."""
    bases: tuple[str, ...]
    """Variables with the base URL."""


PROVIDERS = (
    Provider(
        name="openai",
        url="https://api.openai.com",
        version=_VERSION,
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
        keys=("GEMINI_API_KEY",),
        bases=("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
    ),
    Provider(
        name="deepseek",
        url="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        bases=("DEEPSEEK_API_BASE",),
    ),
)
_KEYS = tuple(key for provider in PROVIDERS for key in provider.keys)
_ENDINGS = ("_API_KEY", "_AUTH_TOKEN", "_OAUTH_TOKEN", "_CUSTOM_HEADERS")
_BASES = ("_API_BASE", "_BASE_URL")


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The APIs that the broker opens for the workers with the same settings."""

    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    """APIs by name."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variables that get the worker's token, by the API's name."""
    bases: Mapping[str, str] = field(default_factory=dict)
    """End of the base URL in each variable: name of the API, and version."""
    api_base: str | None = None
    """End of the base URL for a program that takes it as an option."""

    def environment(self, url: str, token: str) -> dict[str, str]:
        """Return the variables that a worker gets instead of those with keys.

        Args:
            url: URL of the broker.
            token: The worker's token.
        """
        tokens = dict.fromkeys((name for names in self.names.values() for name in names), token)
        return tokens | {name: f"{url}/{end}" for name, end in self.bases.items()}


def shown_to_workers(env: Mapping[str, str], program: Iterable[str]) -> dict[str, str]:
    """Return the variables without keys and base URLs of models' APIs.

    Args:
        env: The variables.
        program: The variables that the agent program reads.
    """
    ours = (name for one in PROVIDERS for name in (*one.keys, *one.bases))
    private = {*ours, *(name for name in program if name.endswith((*_ENDINGS, *_BASES)))}
    return {name: value for name, value in env.items() if name not in private}


def choose_keys(
    program: Iterable[str],
    given: Mapping[str, str],
    *,
    api_base: str | None,
    key_of_model: str | None,
) -> Keys:
    """Return what the broker holds for a worker.

    Args:
        program: The variables that the agent program reads.
        given: The variables that the worker would have without a broker.
        api_base: The base URL that the user chose for all models.
        key_of_model: The variable with the key that the worker's model needs, if that is known.

    Raises:
        ConfigError: A base URL cannot be used, or no key is there for the broker to hold.
    """
    known = tuple(program)
    if api_base is not None:
        return _custom(known, given, api_base, key_of_model)
    return _by_provider(given, key_of_model)


def _custom(
    program: tuple[str, ...], given: Mapping[str, str], api_base: str, key_of_model: str | None
) -> Keys:
    candidates = [name for name in _KEYS if name in program or name in given]
    chosen = [key_of_model] if key_of_model is not None else candidates
    key = next((given[name] for name in chosen if given.get(name)), None)
    url, version = _parts(api_base)
    end = f"{CUSTOM}{version}"
    return Keys(
        upstreams={CUSTOM: Upstream(url=url, key=key)},
        # A program may refuse to start without any key, even if the server needs none.
        names={CUSTOM: tuple(chosen)},
        # The adapter of the program passes the base URL on, in whatever form the program needs it.
        api_base=end,
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
        chosen = next((given[name] for name in provider.bases if given.get(name)), provider.url)
        url, version = _parts(chosen)
        end = f"{provider.name}{version or (provider.version if chosen == provider.url else '')}"
        upstreams[provider.name] = Upstream(url=url, key=given[held[0]])
        names[provider.name] = (held[0],)
        bases |= dict.fromkeys(provider.bases, end)
        if key_of_model in provider.keys:
            # Not every program reads a variable with its base URL.
            api_base = end
    if not upstreams or not (key_of_model is None or key_of_model in _KEYS):
        raise ConfigError(
            "`--keys broker`: the broker cannot hold the key of the worker's model",
            hint=f"it can hold {', '.join(f'`{name}`' for name in _KEYS)}; with other keys and "
            "tokens of subscriptions, use `--keys env`",
        )
    return Keys(upstreams=upstreams, names=names, bases=bases, api_base=api_base)


def _parts(url: str) -> tuple[str, str]:
    """Return a base URL without the version at its end, and the version.

    Raises:
        ConfigError: The URL does not use HTTP, or contains a password or parameters.
    """
    if not _is_usable(url):
        raise ConfigError(
            "`--keys broker`: the base URL of a model's API cannot be used",
            hint="use a URL such as `https://HOST/v1`, without a password and without `?`; set "
            "the key in its own variable",
        )
    base = url.rstrip("/")
    return base.removesuffix(_VERSION), _VERSION if base.endswith(_VERSION) else ""


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            return False
    except ValueError:
        return False
    return not (parts.username or parts.password or parts.query or parts.fragment)
