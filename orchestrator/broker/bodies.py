"""Parse the bodies of workers' model calls, and limit what a call can cost."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.broker.calls import Call

LONGEST_ANSWER = 32_000
"""Maximum number of tokens of an answer, if the worker has a budget and the request sets no
maximum.
"""
SHORTEST_ANSWER = 16
"""Lowest maximum number of tokens that the broker sets for an answer, because OpenAI's API accepts
no lower number.
"""


class BadRequestError(Exception):
    """The body of a request does not have the format that the API expects."""


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
    def read(cls, call: Call, raw: bytes) -> "Request":
        """Parse a body.

        Raises:
            BadRequestError: The body is not a JSON object, or names no model.
        """
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BadRequestError("the request's body is not JSON") from error
        if not isinstance(body, dict):
            raise BadRequestError("the request's body is not a JSON object")
        model = call.model or body.get("model")
        if not isinstance(model, str) or not model:
            raise BadRequestError("the request's body names no model")
        return cls(call, body, model)

    def ask_for_usage(self) -> None:
        """Ask for the number of tokens at a stream's end; OpenAI's API omits it by default."""
        if self.call.flavor != "chat" or not self.body.get("stream"):
            return
        given = self.body.get("stream_options")
        options = dict(given) if isinstance(given, dict) else {}
        if not options.get("include_usage"):
            self.body["stream_options"] = {**options, "include_usage": True}
            self.adds_usage = True

    def limit_answer(self, fits: Callable[[int], bool]) -> int | None:
        """Lower the token limit of each answer until the call fits into the budget.

        Args:
            fits: Function that returns whether the budget is enough for this many tokens in all
                alternative answers together.

        Returns:
            Maximum number of tokens of all alternative answers together; None if not even the
            shortest answers fit.
        """
        place, name = self._limit()
        given = place.get(name)
        asked = given if isinstance(given, int) and given > 0 else LONGEST_ANSWER
        answers = self._answers()
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
        place[name] = low
        return low * answers

    def _answers(self) -> int:
        """Return how many alternative answers the request asks for."""
        settings = self.body.get("generationConfig")
        count = self.body.get("n")
        if self.call.flavor == "gemini" and isinstance(settings, dict):
            count = settings.get("candidateCount")
        return count if isinstance(count, int) and count > 1 else 1

    def _limit(self) -> tuple[dict[str, Any], str]:
        """Return the part of the body with the limit of answer tokens, and the limit's key."""
        if self.call.flavor == "gemini":
            settings = self.body.get("generationConfig")
            if not isinstance(settings, dict):
                settings = self.body["generationConfig"] = {}
            return settings, "maxOutputTokens"
        if self.call.flavor == "responses":
            return self.body, "max_output_tokens"
        if self.call.flavor == "chat" and "max_tokens" not in self.body:
            return self.body, "max_completion_tokens"
        return self.body, "max_tokens"

    def encoded(self) -> bytes:
        """Return the request's body as bytes, to send to the API."""
        return json.dumps(self.body).encode()
