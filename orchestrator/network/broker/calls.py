"""Decide which API calls the broker passes on, and which of their headers and parameters."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Flavor = Literal["chat", "responses", "messages", "gemini"]
"""Format of an API whose calls cost money."""

_PART = r"[A-Za-z0-9._:@-]+"
_PATH = re.compile(rf"/({_PART})/((?:{_PART}/)*{_PART})")
_VERSION = r"(?:v\d+(?:alpha|beta)?\d*/|beta/)?"
_MODEL = r"models/(?P<model>[A-Za-z0-9._-]+)"
_CALLS: tuple[tuple[str, str, Flavor | None], ...] = (
    ("POST", "chat/completions", "chat"),
    ("POST", "responses", "responses"),
    ("POST", "messages", "messages"),
    ("POST", "messages/count_tokens", None),
    ("POST", f"{_MODEL}:(?:generateContent|streamGenerateContent)", "gemini"),
    ("POST", f"{_MODEL}:countTokens", None),
    ("GET", f"(?:{_MODEL}|models)", None),
)
_QUERY = frozenset({"alt", "beta", "limit", "after_id", "before_id", "pageSize", "pageToken"})
# A header that is not named here could change what a call does, as `X-HTTP-Method-Override`, or who
# pays for it, as `OpenAI-Organization`.
_HEADERS = frozenset(
    {
        *("accept", "content-type", "user-agent", "originator", "session_id", "conversation_id"),
        *("x-app", "x-goog-api-client", "x-client-request-id", "openai-beta", "anthropic-version"),
        *("anthropic-beta", "anthropic-dangerous-direct-browser-access"),
        *(
            f"x-stainless-{name}"
            for name in (
                *("arch", "async", "helper", "helper-method", "lang", "os", "package-version"),
                *("poll-helper", "raw-response", "read-timeout", "retry-count", "runtime"),
                *("runtime-version", "timeout"),
            )
        ),
    }
)
_BETA = "anthropic-beta"
_BETAS = re.compile(
    r"(?:adaptive-thinking|advanced-tool-use|claude-code|computer-use|context-1m"
    r"|context-management|effort|fine-grained-tool-streaming|interleaved-thinking"
    r"|mid-conversation-tool-changes|output-128k|per-turn-control|prompt-caching(?:-scope)?"
    r"|redact-thinking|structured-outputs|thinking-display-updates|thinking-token-count"
    r"|token-counting|token-efficient-tools|tool-examples)-[0-9-]+"
)
"""Features of Anthropic's API that a call with limits may ask for: none costs more than tokens."""
_TOKEN_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_BEARER = "bearer "
_QUERY_KEY = "key"
_NOT_RETURNED = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding"),
        *("upgrade", "content-length", "content-encoding", "set-cookie", "location", "alt-svc"),
    }
)


@dataclass(frozen=True)
class Call:
    """A kind of API call that workers may make."""

    upstream: str
    """Name of the API in the worker's grant."""
    path: str
    """Path of the call in the API."""
    flavor: Flavor | None
    """Format of the call; None for a call that is not billed."""
    model: str | None
    """The model, if the path contains it."""


def find_call(method: str, raw_path: str) -> Call | None:
    """Return the allowed call that a request makes; None if the call is not allowed.

    Args:
        method: The method of the request.
        raw_path: The path as it was sent, without the query.
    """
    parts = _PATH.fullmatch(raw_path)
    # protection: paths-with-are-refused
    if parts is None or not {".", ".."}.isdisjoint(raw_path.split("/")):
        return None
    for allowed, path, flavor in _CALLS:
        # protection: only-listed-calls-are-passed-on
        found = re.fullmatch(_VERSION + path, parts[2]) if method == allowed else None
        if found is not None:
            return Call(parts[1], parts[2], flavor, found.groupdict().get("model"))
    return None


def worker_token(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """Return the worker's token, sent in place of an API key; an empty string if none was sent."""
    bearer = headers.get("authorization", "")
    if bearer.lower().startswith(_BEARER):
        return bearer[len(_BEARER) :].strip()
    named = (headers[name] for name in _TOKEN_HEADERS if name in headers)
    return next(named, query.get(_QUERY_KEY, ""))


def request_headers(
    headers: Mapping[str, str], key: str | None, *, is_limited: bool
) -> dict[str, str]:
    """Return the headers to send to the API, with the real key in place of the worker's token.

    Args:
        headers: The headers that the worker sent.
        key: The API key; None for a server without keys.
        is_limited: Whether the worker's models, cost or tokens are limited.
    """
    # protection: only-listed-headers-are-passed-on
    passed = {name: value for name, value in headers.items() if name.lower() in _HEADERS}
    for name in [name for name in passed if is_limited and name.lower() == _BETA]:
        asked = (feature.strip() for feature in passed[name].split(","))
        passed[name] = ",".join(feature for feature in asked if _BETAS.fullmatch(feature))
    # The usage is read from the answer.
    passed["Accept-Encoding"] = "identity"
    if key is None:
        return passed
    if "authorization" in headers:
        return {**passed, "Authorization": f"Bearer {key}"}
    names = (name for name in _TOKEN_HEADERS if name in headers)
    return {**passed, next(names, "x-goog-api-key"): key}


def request_query(query: Mapping[str, str]) -> dict[str, str]:
    """Return the query parameters to send to the API."""
    # protection: only-listed-parameters-are-passed-on
    return {name: value for name, value in query.items() if name in _QUERY}


def answer_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of the API's answer that are passed on to the worker."""
    for name, value in headers.items():
        # protection: cookies-and-redirects-are-removed-from-answers
        if name.lower() not in _NOT_RETURNED:
            yield name, value
