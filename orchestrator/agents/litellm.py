"""What programs share that call models through the library LiteLLM: names, keys, errors."""

from collections.abc import Mapping
from typing import Final

from orchestrator.results import Reason

DEFAULT_MODEL: Final = "gpt-4o"
ENVIRONMENT: Final = {
    # Without it current litellm prints its debug log on stdout, around the report.
    "LITELLM_LOG": "ERROR",
    # Without it litellm fetches its price list at every start and waits 10 s when it cannot.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # What litellm asks of an Anthropic model that is newer than itself; its own 4096 cuts off
    # every longer file.
    "DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS": "32000",
}
# Keys that open a model's API and nothing else: credentials of a whole account (AWS, GitHub,
# Cloudflare, Hugging Face) are not handed to an agent unless `--env` names them.
INHERITED: Final = (
    "LITELLM_API_KEY",
    "LITELLM_PROXY_API_KEY",
    "LITELLM_PROXY_API_BASE",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_ORGANIZATION",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_BASE",
    "GEMINI_API_KEY",
    "GEMINI_API_BASE",
    "AZURE_API_KEY",
    "AZURE_API_BASE",
    "AZURE_API_VERSION",
    "OPENROUTER_API_KEY",
    "OPENROUTER_API_BASE",
    "DEEPSEEK_API_KEY",
    "DEEPSEEK_API_BASE",
    "MISTRAL_API_KEY",
    "MISTRAL_API_BASE",
    "GROQ_API_KEY",
    "GROQ_API_BASE",
    "XAI_API_KEY",
    "XAI_API_BASE",
    "COHERE_API_KEY",
    "TOGETHERAI_API_KEY",
    "FIREWORKS_AI_API_KEY",
    "MOONSHOT_API_KEY",
    "DASHSCOPE_API_KEY",
    "OLLAMA_API_KEY",
    "OLLAMA_API_BASE",
    "HOSTED_VLLM_API_KEY",
    "HOSTED_VLLM_API_BASE",
)
# Families that litellm 1.81 turns away by their bare name: it knows no provider for DeepSeek's,
# and none for an Anthropic model that is newer than itself, such as claude-sonnet-4-6.
_PROVIDERS: Final = {"claude-": "anthropic/", "deepseek-": "deepseek/"}
# Providers that want a key; what is not in here is not checked.
_NEED_KEY: Final = {
    "openai/": "OPENAI",
    "gpt-": "OPENAI",
    "anthropic/": "ANTHROPIC",
    "gemini/": "GEMINI",
    "deepseek/": "DEEPSEEK",
    "openrouter/": "OPENROUTER",
    "mistral/": "MISTRAL",
    "groq/": "GROQ",
    "xai/": "XAI",
}
# litellm takes these in a key's place.
_OTHER_KEYS: Final = {"GEMINI": ("GOOGLE_API_KEY",)}
_REASONS: Final = {
    "AuthenticationError": Reason.AUTH,
    "PermissionDeniedError": Reason.AUTH,
    "RateLimitError": Reason.RATE_LIMITED,
    "ContextWindowExceededError": Reason.CONTEXT_FULL,
}
# OpenAI's library says the first before any request, and OpenAI the second; litellm takes them for
# an `InternalServerError` and a `BadRequestError`.
_NO_KEY: Final = ("Exception - Missing credentials. Please pass ", "You didn't provide an API key")


def with_provider(model: str) -> str:
    """Name the provider where litellm cannot find it by itself; `name@date` is Vertex AI's."""
    if "/" in model or "@" in model:
        return model
    families = (family for family in _PROVIDERS if model.startswith(family))
    return _PROVIDERS.get(next(families, ""), "") + model


def missing_key(
    model: str | None, variable: str, environment: Mapping[str, str], *servers: str
) -> str | None:
    """Name the key of the model's provider, if it is known and a key is all that is missing.

    Args:
        model: As the user named it, if so.
        variable: The program's own, for the model.
        environment: What the container will have.
        servers: The program's own variables for a server of the user's own: it may want no key.
    """
    chosen = with_provider(model or environment.get(variable) or DEFAULT_MODEL)
    provider = next((_NEED_KEY[start] for start in _NEED_KEY if chosen.startswith(start)), None)
    if provider is None:
        return None
    key = f"{provider}_API_KEY"
    bases = (f"{provider}_API_BASE", f"{provider}_BASE_URL", "LITELLM_PROXY_API_BASE", *servers)
    enough = (key, *_OTHER_KEYS.get(provider, ()), *bases)
    return None if any(environment.get(name) for name in enough) else key


def own_server(api_base: str | None) -> dict[str, str]:
    """Return the variables that lead every provider's models to a server of the user's own."""
    if api_base is None:
        return {}
    given = {name for name in INHERITED if name.endswith(("_API_BASE", "_BASE_URL"))}
    keys = (name for name in INHERITED if name.endswith("_API_KEY"))
    names = given | {f"{name.removesuffix('_API_KEY')}_API_BASE" for name in keys}
    return dict.fromkeys(sorted(names - {"LITELLM_PROXY_API_BASE"}), api_base)


def reason_of(error: str, text: str) -> Reason:
    """Return why a call failed.

    Args:
        error: What litellm calls its exception.
        text: What it says.
    """
    if any(phrase in text for phrase in _NO_KEY):
        return Reason.AUTH
    return _REASONS.get(error, Reason.AGENT_ERROR)
