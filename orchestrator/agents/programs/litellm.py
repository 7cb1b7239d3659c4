"""Model names, API keys and errors of LiteLLM, the library that several agent programs use."""

from collections.abc import Mapping
from typing import Final

from orchestrator.base.results import Reason

DEFAULT_MODEL: Final = "gpt-4o"
ENVIRONMENT: Final = {
    # Without this variable, litellm prints debug logs on stdout, around the report.
    "LITELLM_LOG": "ERROR",
    # Without this variable, litellm downloads a price list at every start, for up to 10 s.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # Used for Anthropic models that this litellm version does not know. Its default of 4096 would
    # cut off longer files.
    "DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS": "32000",
}
# Keys that only give access to a model's API. Credentials of a whole account (AWS, GitHub,
# Cloudflare, Hugging Face) are passed to an agent only if `--env` names them.
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
# Families of models that litellm 1.81 rejects without a provider: DeepSeek's, and Anthropic models
# newer than this version, such as claude-sonnet-4-6.
_PROVIDERS: Final = {"claude-": "anthropic/", "deepseek-": "deepseek/"}
# Providers that require a key; other providers are not checked.
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
# Variables that litellm accepts instead of a key.
_OTHER_KEYS: Final = {"GEMINI": ("GOOGLE_API_KEY",)}
_REASONS: Final = {
    "AuthenticationError": Reason.AUTH,
    "PermissionDeniedError": Reason.AUTH,
    "RateLimitError": Reason.RATE_LIMITED,
    "ContextWindowExceededError": Reason.CONTEXT_FULL,
}
# Messages of OpenAI's library before a request, and of OpenAI's API. litellm reports them as
# `InternalServerError` and `BadRequestError`.
_NO_KEY: Final = ("Exception - Missing credentials. Please pass ", "You didn't provide an API key")


def with_provider(model: str) -> str:
    """Return a model's name with the prefix of its provider, where LiteLLM needs the prefix.

    A name with `@`, such as `claude-sonnet-4@20250514`, is a model of Vertex AI and gets no prefix.
    """
    if "/" in model or "@" in model:
        return model
    families = (family for family in _PROVIDERS if model.startswith(family))
    return _PROVIDERS.get(next(families, ""), "") + model


def missing_key(
    model: str | None, variable: str, environment: Mapping[str, str], *servers: str
) -> str | None:
    """Return the name of the API key's variable if the provider needs the key and it is missing.

    `variable` is the program's own variable for the model. `servers` are its variables for a custom
    server, which may not need a key.
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
    """Return the variables that make LiteLLM send the requests for all providers to one server."""
    if api_base is None:
        return {}
    given = {name for name in INHERITED if name.endswith(("_API_BASE", "_BASE_URL"))}
    keys = (name for name in INHERITED if name.endswith("_API_KEY"))
    names = given | {f"{name.removesuffix('_API_KEY')}_API_BASE" for name in keys}
    return dict.fromkeys(sorted(names - {"LITELLM_PROXY_API_BASE"}), api_base)


def reason_of(error: str, text: str) -> Reason:
    """Return the reason of a failed model call."""
    if any(phrase in text for phrase in _NO_KEY):
        return Reason.AUTH
    return _REASONS.get(error, Reason.AGENT_ERROR)
