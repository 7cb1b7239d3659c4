"""Responses of the Gemini API: complete, streamed, and errors."""

import json
from collections.abc import Iterator

from tests.support.model_script import Asked, Exchange, Json, Turn

_KINDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
}


class Gemini:
    """The dialect of `:generateContent` and `:streamGenerateContent`."""

    @staticmethod
    def asked(path: str, body: Json) -> Asked:
        """Parse a request: its path names the model, and the task follows the preamble."""
        contents = body["contents"]
        asked = [content for content in contents if content.get("role") == "user"]
        texts = [part["text"] for part in asked[0]["parts"] if "text" in part] if asked else []
        functions = [
            function["name"]
            for tool in body.get("tools") or []
            # LiteLLM writes the name in snake case.
            for spelling in ("functionDeclarations", "function_declarations")
            for function in tool.get(spelling) or []
        ]
        return Asked(
            model=path.rpartition("/models/")[2].partition(":")[0],
            task=texts[-1] if texts else "",
            number=sum(content.get("role") == "model" for content in contents),
            tools=frozenset(functions),
        )

    @staticmethod
    def wants_stream(path: str, body: Json) -> bool:  # noqa: ARG004
        """Return whether the response must be streamed."""
        return ":streamGenerateContent" in path

    @staticmethod
    def error(turn: Turn) -> Json:
        """Return the body of an error."""
        kind = _KINDS.get(turn.status, "INTERNAL")
        return {"error": {"code": turn.status, "message": turn.text, "status": kind}}

    @staticmethod
    def _parts(exchange: Exchange) -> list[Json]:
        turn = exchange.turn
        parts: list[Json] = [{"text": turn.text}] if turn.text else []
        calls = [{"name": call.name, "args": dict(call.arguments)} for call in turn.calls]
        return parts + [{"functionCall": call} for call in calls]

    @classmethod
    def _chunk(cls, exchange: Exchange, parts: list[Json], reason: str | None) -> Json:
        given, made = exchange.input_tokens, exchange.output_tokens
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": given,
                "candidatesTokenCount": made,
                "totalTokenCount": given + made,
            },
            "modelVersion": exchange.model,
        }

    @classmethod
    def answer(cls, exchange: Exchange) -> Json:
        """Return the complete response."""
        return cls._chunk(exchange, cls._parts(exchange), "STOP")

    @classmethod
    def stream(cls, exchange: Exchange) -> Iterator[str]:
        """Yield the response as server-sent events, one per part."""
        parts = cls._parts(exchange)
        for number, part in enumerate(parts, start=1):
            chunk = cls._chunk(exchange, [part], "STOP" if number == len(parts) else None)
            yield f"data: {json.dumps(chunk)}\r\n\r\n"
