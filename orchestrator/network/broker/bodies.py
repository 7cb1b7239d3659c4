"""Parse the bodies of workers' model calls, and limit what a call can cost."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from orchestrator.network.broker.anthropic_fields import Messages
from orchestrator.network.broker.calls import Call, Flavor
from orchestrator.network.broker.fields import Fields
from orchestrator.network.broker.google_fields import Gemini
from orchestrator.network.broker.openai_fields import Chat, Responses

LONGEST_ANSWER = 32_000
"""Maximum number of tokens of an answer, if the worker has a budget and the request sets no
maximum.
"""
SHORTEST_ANSWER = 16
"""Lowest maximum number of tokens that the broker sets for an answer, because OpenAI's API accepts
no lower number.
"""
FEWEST_THOUGHTS = 1024
"""Lowest number of tokens for thinking that Anthropic's API accepts."""
MOST_VALUES = 200_000
"""Maximum number of values in a body: a value needs much more memory than its text."""
MOST_LEVELS = 100
"""Maximum number of lists and objects in each other in a body."""
FIELDS: Mapping[Flavor, type[Fields]] = {
    "chat": Chat,
    "responses": Responses,
    "messages": Messages,
    "gemini": Gemini,
}
"""Listed fields of each API that costs money."""
_IMAGES: Mapping[Flavor, int] = {
    "chat": 50_000,
    "responses": 50_000,
    "messages": 10_000,
    "gemini": 10_000,
}
"""Maximum number of tokens of an image, whatever its size in bytes."""
_TOOLS = 1000
"""Maximum number of tokens that a provider adds to a request with tools."""
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_PATH = 200
_OPENAI = "openai"


class BadRequestError(Exception):
    """The body of a request does not have the format that the API expects, or is not allowed."""

    def __init__(self, message: str, code: str = "invalid_request", status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass
class Request:
    """The parsed body of a request to a model's API that costs money."""

    call: Call
    body: dict[str, Any]
    model: str
    adds_usage: bool = False
    """Whether the broker, and not the worker, asked the API to report the number of tokens at the
    end of the stream.
    """

    @classmethod
    def read(cls, call: Call, raw: bytes, *, unique: bool) -> "Request":
        """Parse a body.

        Args:
            call: The call; it must cost money.
            raw: The body.
            unique: Whether every field must have one meaning in all programs that parse the body.

        Raises:
            BadRequestError: The body is not a JSON object of a moderate number of values, names no
                model, or has a field twice.
        """
        # How many values a body has, and how deep they are, is checked before it is parsed.
        marks = _TEXT.sub(b"", raw)
        # protection: number-of-values-limited-before-parsing
        if sum(map(marks.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise BadRequestError(
                f"the request's body has more than {MOST_VALUES} values", "request_too_large", 413
            )
        level = deepest = 0
        for mark in re.findall(rb"[\[\]{}]", marks):
            level += 1 if mark in b"[{" else -1
            deepest = max(deepest, level)
        # protection: levels-limited-before-parsing
        if deepest > MOST_LEVELS:
            raise BadRequestError(f"the request's body has more than {MOST_LEVELS} levels")
        body = _parse(raw, unique=unique)
        if not isinstance(body, dict):
            raise BadRequestError("the request's body is not a JSON object")
        model = call.model or body.get("model")
        if not isinstance(model, str) or not model:
            raise BadRequestError("the request's body names no model")
        return cls(call, body, model)

    def check_fields(self) -> None:
        """Check that every field is listed for calls with limits, and has one spelling.

        Raises:
            BadRequestError: A field is not listed, or has a value that is not allowed.
        """
        if self.call.flavor is None:
            raise ValueError("the call is not billed")
        limits = ("max_tokens", "max_completion_tokens")
        both = [name for name in limits if self.body.get(name) is not None]
        # protection: only-one-limit-of-answer
        if self.call.flavor == "chat" and len(both) > 1:
            raise BadRequestError(
                "the fields `max_tokens` and `max_completion_tokens` are both there",
                "field_not_allowed",
            )
        try:
            found = FIELDS[self.call.flavor].model_validate(self.body)
        except ValidationError as error:
            raise BadRequestError(_what_is_wrong(error, self.body), "field_not_allowed") from error
        self.body = found.model_dump(by_alias=True, exclude_unset=True)

    def ask_for_usage(self) -> None:
        """Ask for the number of tokens at a stream's end; OpenAI's API omits it by default."""
        if self.call.flavor != "chat" or not self.body.get("stream"):
            return
        given = self.body.get("stream_options")
        options = dict(given) if isinstance(given, dict) else {}
        if not options.get("include_usage"):
            self.body["stream_options"] = {**options, "include_usage": True}
            self.adds_usage = True

    def most_given(self) -> int:
        """Return the maximum number of input tokens: a token has at least one byte."""
        images = 0
        waiting: list[object] = [self.body]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                is_image = part.get("type") in ("image", "image_url", "input_image")
                images += is_image or "inlineData" in part
                waiting += part.values()
            elif isinstance(part, list):
                waiting += part
        tools = _TOOLS if self.body.get("tools") else 0
        each = 0 if self.call.flavor is None else _IMAGES[self.call.flavor]
        # protection: images-are-counted
        return len(self.encode()) + images * each + tools

    @property
    def answers(self) -> int:
        """Return the number of alternative answers."""
        count = self._settings().get("candidateCount" if self.call.flavor == "gemini" else "n")
        return count if isinstance(count, int) and count > 1 else 1

    @property
    def asked(self) -> int:
        """Return the maximum number of tokens of all answers together that the call asks for."""
        names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
        limits = [self._settings().get(name) for name in names]
        given = [limit for limit in limits if isinstance(limit, int) and limit > 0]
        return max(given, default=LONGEST_ANSWER) * self.answers

    def _settings(self) -> dict[str, Any]:
        """Return the part of the body with the limits of the answer."""
        if self.call.flavor != "gemini":
            return self.body
        settings = self.body.get("generationConfig", self.body.get("generation_config"))
        return settings if isinstance(settings, dict) else {}

    def limit_answer(self, fits: Callable[[int], bool]) -> int | None:
        """Lower the token limit of each answer until the call fits into the budget.

        Args:
            fits: Function that returns whether the budget is enough for this many tokens in all
                alternative answers together.

        Returns:
            Maximum number of tokens of all alternative answers together; None if not even the
            shortest answers fit, or the shortest thinking that the call asks for.
        """
        place, name = self._limit()
        given = place.get(name)
        asked = given if isinstance(given, int) and given > 0 else LONGEST_ANSWER
        answers = self.answers
        low, high = 0, asked
        # Search for the largest number of tokens for which `fits` is true.
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle * answers):
                low = middle
            else:
                high = middle - 1
        if low < min(SHORTEST_ANSWER, asked):
            return None
        thinking = self.body.get("thinking")
        if isinstance(thinking, dict) and thinking.get("type") == "enabled":
            thoughts = thinking.get("budget_tokens")
            # Anthropic's API refuses an answer that is not longer than its thinking. Calls for
            # which that is not so, because they think between calls of tools, stay as they are.
            if isinstance(thoughts, int) and low <= thoughts < asked:
                if low <= FEWEST_THOUGHTS:
                    return None
                thinking["budget_tokens"] = low - 1
        place[name] = low
        return low * answers

    def _limit(self) -> tuple[dict[str, Any], str]:
        """Return the part of the body with the limit of answer tokens, and the limit's key."""
        if self.call.flavor == "gemini":
            settings = self.body.get("generationConfig")
            if not isinstance(settings, dict):
                settings = self.body["generationConfig"] = {}
            return settings, "maxOutputTokens"
        if self.call.flavor == "responses":
            return self.body, "max_output_tokens"
        if self.call.flavor == "chat":
            # The only key of the limit, in the spelling that the API knows for sure.
            new, old = "max_completion_tokens", "max_tokens"
            name = new if self.call.upstream == _OPENAI and self.body.get(old) is None else old
            other = old if name == new else new
            given = self.body.pop(other, None)
            if given is not None:
                self.body[name] = given
            return self.body, name
        return self.body, "max_tokens"

    def encode(self) -> bytes:
        """Return the request's body as bytes, to send to the API."""
        try:
            return json.dumps(self.body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return json.dumps(self.body).encode()


def _parse(raw: bytes, *, unique: bool) -> object:
    try:
        body = json.loads(
            raw,
            object_pairs_hook=_unique if unique else None,
            parse_constant=_refuse_constant if unique else None,
        )
        if unique and _HALF_CHARACTER.search(raw):
            # Half of a character, as some programs send where they cut a text, has no encoding.
            return json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the request's body is not JSON") from error
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, each of whose names has one meaning."""
    found = dict(pairs)
    # protection: fields-have-one-meaning
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRequestError(
            f"the field `{twice:.{_LONGEST_PATH}}` is there twice", "field_not_allowed"
        )
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _what_is_wrong(error: ValidationError, body: dict[str, Any]) -> str:
    """Return a sentence about the field that is wrong, with its name."""
    found = []
    for item in error.errors(include_url=False):
        path: list[str | int] = []
        value: object = body
        for part in item["loc"]:
            # Only names and indexes belong to the path; other words are names of alternatives.
            with suppress(LookupError, TypeError):
                value = value[part]  # type: ignore[index]
                path.append(part)
        found.append((path, item))
    # Where a value may have several forms, the form that was meant explains most.
    path, item = max(found, key=lambda entry: len(entry[0]))
    if item["type"].startswith("union_tag"):
        path = [*path, "type"]
    name = ".".join(map(str, path))[:_LONGEST_PATH]
    if item["type"] == "missing":
        return f"the field `{name}` is missing"
    why = "" if item["type"] == "extra_forbidden" else f" with this value ({item['msg'][:200]})"
    return (
        f"the field `{name}` is not allowed{why}, because the worker's models, cost or tokens "
        "are limited"
    )
