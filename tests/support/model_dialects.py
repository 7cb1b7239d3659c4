"""Requests and responses of models' APIs: complete, streamed, and errors."""

import json
import time
from collections.abc import Iterator, Mapping
from itertools import groupby

from tests.support.model_gemini import Gemini
from tests.support.model_script import Asked, Exchange, Json, Turn, plain_text, read_messages


class _Messages:
    """Common part of the dialects whose requests have `messages`."""

    @staticmethod
    def asked(path: str, body: Json) -> Asked:  # noqa: ARG004
        """Parse a request."""
        return read_messages(body)

    @staticmethod
    def wants_stream(path: str, body: Json) -> bool:  # noqa: ARG004
        """Return whether the response must be streamed."""
        return bool(body.get("stream"))


class OpenAI(_Messages):
    """The dialect of `/chat/completions`."""

    @staticmethod
    def error(turn: Turn) -> Json:
        """Return the body of an error."""
        kinds = {401: "invalid_request_error", 429: "rate_limit_exceeded"}
        return {"error": {"message": turn.text, "type": kinds.get(turn.status, "server_error")}}

    @staticmethod
    def _usage(exchange: Exchange) -> Json:
        given, made = exchange.input_tokens, exchange.output_tokens
        return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}

    @staticmethod
    def _calls(exchange: Exchange) -> list[Json]:
        return [
            {
                "index": index,
                "id": f"call_{exchange.number}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for index, call in enumerate(exchange.turn.calls)
        ]

    @staticmethod
    def _envelope(exchange: Exchange, kind: str, **fields: object) -> Json:
        head = {"id": "chatcmpl-scripted", "object": kind, "created": int(time.time())}
        return {**head, "model": exchange.model, **fields}

    @classmethod
    def answer(cls, exchange: Exchange) -> Json:
        """Return the complete response."""
        turn = exchange.turn
        message: Json = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = cls._calls(exchange)
        reason = "tool_calls" if turn.calls else "stop"
        choice: Json = {"index": 0, "message": message, "finish_reason": reason}
        usage = cls._usage(exchange)
        return cls._envelope(exchange, "chat.completion", choices=[choice], usage=usage)

    @classmethod
    def stream(cls, exchange: Exchange) -> Iterator[str]:
        """Yield the response as server-sent events."""
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word + " "} for word in exchange.turn.text.split()]
        deltas += [{"tool_calls": [call]} for call in cls._calls(exchange)]
        reason = "tool_calls" if exchange.turn.calls else "stop"
        choices: list[Json] = [
            {"index": 0, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        choices.append({"index": 0, "delta": {}, "finish_reason": reason})
        for choice in choices:
            chunk = cls._envelope(exchange, "chat.completion.chunk", choices=[choice])
            yield f"data: {json.dumps(chunk)}\n\n"
        usage = cls._usage(exchange)
        last = cls._envelope(exchange, "chat.completion.chunk", choices=[], usage=usage)
        yield f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n"


class Anthropic(_Messages):
    """The dialect of `/messages`."""

    @staticmethod
    def error(turn: Turn) -> Json:
        """Return the body of an error."""
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(turn.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": turn.text}}

    @staticmethod
    def _blocks(exchange: Exchange) -> list[Json]:
        turn = exchange.turn
        blocks: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        for index, call in enumerate(turn.calls):
            identifier = f"toolu_{exchange.number}_{index}"
            block = {"type": "tool_use", "id": identifier, "name": call.name}
            blocks.append({**block, "input": dict(call.arguments)})
        return blocks

    @classmethod
    def answer(cls, exchange: Exchange) -> Json:
        """Return the complete response."""
        return {
            "id": f"msg_{exchange.number}",
            "type": "message",
            "role": "assistant",
            "model": exchange.model,
            "content": cls._blocks(exchange),
            "stop_reason": "tool_use" if exchange.turn.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": exchange.input_tokens,
                "output_tokens": exchange.output_tokens,
            },
        }

    @classmethod
    def _block_events(cls, index: int, block: Json) -> Iterator[Json]:
        if block["type"] == "text":
            empty: Json = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}

    @classmethod
    def stream(cls, exchange: Exchange) -> Iterator[str]:
        """Yield the response as server-sent events."""
        whole = cls.answer(exchange)
        start = {**whole, "content": [], "stop_reason": None}
        events: list[Json] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(whole["content"]):
            events += cls._block_events(index, block)
        end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": exchange.output_tokens}
        events.append({"type": "message_delta", "delta": end, "usage": usage})
        events.append({"type": "message_stop"})
        for event in events:
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


class Responses(_Messages):
    """The dialect of `/responses`, OpenAI's newer one."""

    @staticmethod
    def asked(path: str, body: Json) -> Asked:  # noqa: ARG004
        """Parse a request: its last message before any answer is the task."""
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        turns = [(answer, list(run)) for answer, run in groupby(items, Responses._is_answer)]
        before = [] if not turns or turns[0][0] else turns[0][1]
        asked = [item for item in before if item.get("role") == "user"]
        return Asked(
            model=body["model"],
            task=plain_text(asked[-1]["content"]) if asked else "",
            number=sum(answer for answer, _ in turns),
            tools=frozenset(tool.get("name") or tool["type"] for tool in body.get("tools") or ()),
        )

    @staticmethod
    def _is_answer(item: Json) -> bool:
        return item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")

    @staticmethod
    def error(turn: Turn) -> Json:
        """Return the body of an error."""
        return OpenAI.error(turn)

    @staticmethod
    def _items(exchange: Exchange) -> list[Json]:
        turn, number = exchange.turn, exchange.number
        items: list[Json] = []
        if turn.text:
            text = {"type": "output_text", "text": turn.text, "annotations": []}
            head = {"type": "message", "id": f"msg_{number}", "role": "assistant"}
            items.append({**head, "status": "completed", "content": [text]})
        for index, call in enumerate(turn.calls):
            head = {"type": "function_call", "id": f"fc_{number}_{index}", "name": call.name}
            arguments = json.dumps(call.arguments)
            call_id = f"call_{number}_{index}"
            items.append(
                {**head, "call_id": call_id, "arguments": arguments, "status": "completed"}
            )
        return items

    @classmethod
    def answer(cls, exchange: Exchange) -> Json:
        """Return the complete response."""
        given, made = exchange.input_tokens, exchange.output_tokens
        return {
            "id": f"resp_{exchange.number}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "completed",
            "model": exchange.model,
            "output": cls._items(exchange),
            "usage": {
                "input_tokens": given,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": made,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": given + made,
            },
        }

    @classmethod
    def stream(cls, exchange: Exchange) -> Iterator[str]:
        """Yield the response as server-sent events."""
        whole = cls.answer(exchange)
        start = {**whole, "status": "in_progress", "output": [], "usage": None}
        events: list[Json] = [{"type": "response.created", "response": start}]
        for index, item in enumerate(whole["output"]):
            place = {"output_index": index}
            events.append({"type": "response.output_item.added", "item": item, **place})
            if item["type"] == "message":
                delta = {"item_id": item["id"], "content_index": 0, "delta": exchange.turn.text}
                events.append({"type": "response.output_text.delta", **delta, **place})
            events.append({"type": "response.output_item.done", "item": item, **place})
        events.append({"type": "response.completed", "response": whole})
        for number, event in enumerate(events):
            data = json.dumps({**event, "sequence_number": number})
            yield f"event: {event['type']}\ndata: {data}\n\n"


Dialect = type[OpenAI] | type[Anthropic] | type[Responses] | type[Gemini]
_ENDS: Mapping[str, Dialect] = {
    "/chat/completions": OpenAI,
    "/responses": Responses,
    "/messages": Anthropic,
    ":generateContent": Gemini,
    ":streamGenerateContent": Gemini,
}


def dialect_of(path: str) -> Dialect | None:
    """Return the dialect of a request's path, wherever the caller's base URL ends."""
    path = path.partition("?")[0]
    return next((_ENDS[end] for end in _ENDS if path.endswith(end)), None)
