"""What a call costs: to its own end, and wherever its answer breaks off, in every dialect."""

import gzip
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.network.broker.accounts import Account
from orchestrator.network.broker.answers import reader_of
from orchestrator.network.broker.bodies import Request
from orchestrator.network.broker.grant import Grant
from orchestrator.network.broker.ledger import Ledger, read_ledger
from tests.network.broker.test_bodies import call_of
from tests.network.broker.upstream import TOKEN, Answer, Api, RunningBroker, api
from tests.support.live import PATIENCE, eventually

INPUT, MADE, LIMIT = 20, 90, 1000
"""Tokens that a complete answer reads and makes, and the most that the call allows."""
FAKE = (
    "data: [DONE]\n\nevent: message_stop\ndata: "
    '{"type": "message_stop", "usage": {"output_tokens": 1}, "finishReason": "STOP"}\n\n'
)
"""Text of a model that looks like the end of a stream."""
SSE, JSON = "text/event-stream", "application/json"
PATHS = {
    "messages": "/anthropic/v1/messages",
    "chat": "/openai/v1/chat/completions",
    "responses": "/openai/v1/responses",
    "gemini": "/gemini/v1beta/models/gemini-2.5-pro:streamGenerateContent",
}
PRICES = {"messages": (3.0, 15.0), "chat": (2.5, 10.0), "responses": (2.5, 10.0)} | {
    "gemini": (1.25, 10.0)
}
"""Price of input and output, in USD per million tokens."""
REQUESTS: dict[str, dict[str, Any]] = {
    "messages": {"model": "claude-sonnet-4-5", "max_tokens": LIMIT, "messages": []},
    "chat": {"model": "gpt-4o", "max_tokens": LIMIT, "messages": []},
    "responses": {"model": "gpt-4o", "max_output_tokens": LIMIT, "input": "hi"},
    "gemini": {"contents": [], "generationConfig": {"maxOutputTokens": LIMIT}},
}


def event(content: object, *, named: bool = False) -> bytes:
    line = f"event: {content['type']}\n" if named and isinstance(content, dict) else ""
    return f"{line}data: {json.dumps(content)}\n\n".encode()


def _messages(text: str = "word ", made: Any = MADE) -> list[Any]:
    start = {"input_tokens": INPUT, "cache_read_input_tokens": 0, "output_tokens": 1}
    return [
        {"type": "message_start", "message": {"model": "claude-sonnet-4-5", "usage": start}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}}
            for t in (text, text)
        ],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        | ({} if made is None else {"usage": {"output_tokens": made}}),
        {"type": "message_stop"},
    ]


def _chat(text: str = "word ", made: Any = MADE) -> list[Any]:
    usage = {"prompt_tokens": INPUT, "completion_tokens": made, "total_tokens": 0}
    return [
        *[{"model": "gpt-4o", "choices": [{"index": 0, "delta": {"content": text}}]}] * 3,
        {"model": "gpt-4o", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"model": "gpt-4o", "choices": [], "usage": None if made is None else usage},
    ]


def _responses(text: str = "word ", made: Any = MADE) -> list[Any]:
    usage = {"input_tokens": INPUT, "output_tokens": made, "total_tokens": 0}
    return [
        {"type": "response.created", "response": {"model": "gpt-4o", "usage": None}},
        *[{"type": "response.output_text.delta", "delta": text}] * 3,
        {"type": "response.output_item.done", "item": {"content": [{"text": text * 3}]}},
        {
            "type": "response.completed",
            "response": {"model": "gpt-4o", "usage": None if made is None else usage},
        },
    ]


def _gemini(text: str = "word ", made: Any = MADE) -> list[Any]:
    def part(number: int) -> dict[str, Any]:
        counts = {"promptTokenCount": INPUT, "candidatesTokenCount": number * MADE // 3}
        found: dict[str, Any] = {"modelVersion": "gemini-2.5-pro", "usageMetadata": counts}
        found["candidates"] = [{"content": {"parts": [{"text": text}]}}]
        return found

    last = part(3)
    last["candidates"][0]["finishReason"] = "STOP"
    if made is None:
        del last["usageMetadata"]
    else:
        last["usageMetadata"]["candidatesTokenCount"] = made
    return [part(1), part(2), last]


EVENTS: dict[str, Callable[..., list[Any]]] = {
    "messages": _messages,
    "chat": _chat,
    "responses": _responses,
    "gemini": _gemini,
}
ERRORS: dict[str, dict[str, Any]] = {
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    "chat": {"error": {"message": "The server had an error", "code": 500}},
    "responses": {"type": "error", "code": "server_error", "message": "failed"},
    "gemini": {"error": {"code": 503, "status": "UNAVAILABLE"}},
}
FLAVORS = tuple(EVENTS)


def stream(flavor: str, text: str = "word ", made: Any = MADE) -> list[bytes]:
    """Return the events of a complete answer."""
    events = [event(part, named="type" in part) for part in EVENTS[flavor](text, made)]
    return [*events, b"data: [DONE]\n\n"] if flavor == "chat" else events


def due(flavor: str, given: int = INPUT, made: int = MADE) -> float:
    """Return the cost of tokens."""
    reads, makes = PRICES[flavor]
    return (given * reads + made * makes) / 1e6


class Billing:
    """Calls of one worker, without a network."""

    def __init__(self, tmp_path: Path, **limits: Any) -> None:
        grant = Grant(ledger="1", token="", upstreams={}, **limits)
        self.account = Account(grant, Ledger(tmp_path / "ledger"), Redactor({}))

    def cost(
        self,
        flavor: str,
        parts: Sequence[bytes],
        *,
        closes: bool = True,
        kind: str = SSE,
        status: int = 200,
        body: dict[str, Any] | None = None,
    ) -> tuple[float, float]:
        """Return what a call costs, and what was set aside for it."""
        call = call_of(flavor)
        request = Request.read(
            call, json.dumps(REQUESTS[flavor] | (body or {})).encode(), unique=False
        )
        number = self.account.set_aside(request)
        spent = self.account.ledger.spent
        spent.cost, reserved = 0.0, spent.pending[number][0]
        request.ask_for_usage()
        reader = reader_of(
            kind,
            flavor,
            answers=request.answers,
            without_usage=request.adds_usage,
        )
        for part in parts:
            reader.feed(part)
        if closes:
            reader.close()
        self.account.settle(number, request, reader, costs_nothing=status >= 400)
        assert reserved is not None
        assert not spent.pending
        return spent.cost, reserved


@pytest.fixture
def limited(tmp_path: Path) -> Billing:
    return Billing(tmp_path, budget=100.0)


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("flavor", FLAVORS)
class TestEveryDialect:
    def test_answer_costs_its_usage_however_it_is_split(
        self, limited: Billing, flavor: str
    ) -> None:
        for text in ("word ", FAKE):
            whole = b"".join(stream(flavor, text))
            crlf = whole.replace(b"\n", b"\r\n")
            for data in (whole, crlf, crlf.replace(b"\r\n", b"\r"), whole + b"\0 garbage\n\n{"):
                for parts in ([data], in_pieces(data, 7), in_pieces(data, 1)):
                    cost, _ = limited.cost(flavor, parts)
                    assert cost == pytest.approx(due(flavor)), (text, parts)

    def test_answer_that_breaks_off_costs_what_was_set_aside(
        self, limited: Billing, flavor: str
    ) -> None:
        for text in ("word ", FAKE):
            events = stream(flavor, text)
            whole = b"".join(events)
            ends = {len(b"".join(events[:count])) for count in range(len(events))}
            inside = {end + 25 for end in ends} | {end - 1 for end in ends if end}
            for end in sorted(cut for cut in ends | inside if cut < len(whole)):
                cost, reserved = limited.cost(flavor, [whole[:end]], closes=False)
                assert cost == reserved >= due(flavor, made=LIMIT), whole[:end]

    def test_server_that_gives_up_in_order_costs_what_was_set_aside(
        self, limited: Billing, flavor: str
    ) -> None:
        # Some servers never send the last event: without it, only the whole usage is an end.
        events = [part for part in stream(flavor) if b"[DONE]" not in part]
        without_usage = stream(flavor, made=None)
        for parts in (*(events[:count] for count in range(len(events) - 1)), without_usage):
            if flavor == "messages" and len(parts) == len(events) - 1:
                continue
            cost, reserved = limited.cost(flavor, parts)
            assert cost == reserved, parts

    def test_error_of_the_server_costs_what_was_set_aside(
        self, limited: Billing, flavor: str
    ) -> None:
        events, failed = stream(flavor), event(ERRORS[flavor])
        for count in range(len(events) - 1):
            for rest in ([], events[count:]):
                cost, reserved = limited.cost(flavor, [*events[:count], failed, *rest])
                assert cost == reserved

    def test_usage_is_the_most_that_was_seen(self, limited: Billing, flavor: str) -> None:
        events = stream(flavor)
        less = stream(flavor, made=1)
        cost, _ = limited.cost(flavor, [*events[:-2], *(less[-2:-1]), *events[-2:]])
        assert cost == pytest.approx(due(flavor))
        if flavor == "gemini":  # Each event has a usage.
            cost, _ = limited.cost(flavor, [*events[:-1], less[-1]])
            assert cost == pytest.approx(due(flavor, made=MADE * 2 // 3))

    def test_without_budget_what_was_sent_is_paid(self, tmp_path: Path, flavor: str) -> None:
        billing = Billing(tmp_path)
        events = stream(flavor, "a b c d e " * 40)
        assert billing.cost(flavor, events)[0] == pytest.approx(due(flavor))
        cost, _ = billing.cost(flavor, events[:-1], closes=False)
        assert due(flavor, made=LIMIT) <= cost <= due(flavor, given=200, made=LIMIT) * 1.3
        nothing, reserved = billing.cost(flavor, [], closes=False)
        assert nothing == reserved < due(flavor, given=200) * 1.3

    def test_error_status_costs_nothing(self, limited: Billing, flavor: str) -> None:
        for status in (400, 429, 503, 529):
            body = json.dumps(ERRORS[flavor]).encode()
            assert limited.cost(flavor, [body], kind=JSON, status=status)[0] == 0
            assert limited.cost(flavor, [], kind=JSON, status=status, closes=False)[0] == 0

    def test_impossible_usage_costs_what_was_set_aside(self, limited: Billing, flavor: str) -> None:
        for made in (-5, "90", [90], {"a": 1}, float("nan"), float("inf")):
            cost, reserved = limited.cost(flavor, stream(flavor, made=made))
            assert cost == reserved, made


def _whole(flavor: str) -> bytes:
    found: dict[str, Any] = {"error": None}
    for part in EVENTS[flavor]():
        inner = part.get("message") or part.get("response") or part
        found |= {key: value for key, value in inner.items() if key not in ("type", "usage")}
        if isinstance(inner.get("usage"), dict):
            found["usage"] = found.get("usage", {}) | inner["usage"]
    return json.dumps(found).encode()


@pytest.mark.parametrize("flavor", FLAVORS)
def test_answers_of_one_object(limited: Billing, flavor: str) -> None:
    whole = _whole(flavor)
    for data in (whole, b"\xef\xbb\xbf \n" + whole, whole + b"\n\0{"):
        cost, _ = limited.cost(flavor, in_pieces(data, 11), kind=JSON)
        assert cost == pytest.approx(due(flavor))
    for data in (b"", whole[:-1], b"<html>", b"[]", b"null", b'{"choices": [{}]}', b"[" * 10**5):
        for closes in (True, False):
            cost, reserved = limited.cost(flavor, [data], kind=JSON, closes=closes)
            assert cost == reserved, data


def test_streams_of_google_as_arrays(limited: Billing) -> None:
    parts = EVENTS["gemini"]()
    cost, _ = limited.cost("gemini", [json.dumps(parts).encode()], kind=JSON)
    assert cost == pytest.approx(due("gemini"))
    early = [parts[:2], [*parts[:2], ERRORS["gemini"]], EVENTS["gemini"](made=None)]
    texts = [json.dumps(answer) for answer in early]
    for text in (*texts, json.dumps(parts)[:-1]):
        cost, reserved = limited.cost("gemini", [text.encode()], kind=JSON)
        assert cost == reserved


def test_every_alternative_must_end(limited: Billing) -> None:
    body = {"generationConfig": {"maxOutputTokens": LIMIT, "candidateCount": 2}}
    parts = EVENTS["gemini"]()
    cost, reserved = limited.cost("gemini", [event(part) for part in parts], body=body)
    assert cost == reserved
    other = json.loads(json.dumps(parts[-1]))
    other["candidates"][0]["index"] = 1
    cost, _ = limited.cost("gemini", [event(part) for part in (*parts, other)], body=body)
    assert cost == pytest.approx(due("gemini"))


def test_blocked_prompt_costs_its_input(limited: Billing) -> None:
    usage = {"promptTokenCount": INPUT, "totalTokenCount": INPUT}
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}
    cost, _ = limited.cost("gemini", [event(blocked)])
    assert cost == pytest.approx(due("gemini", made=0))


def test_ends_that_servers_write_otherwise(limited: Billing) -> None:
    usage = {"prompt_tokens": INPUT, "completion_tokens": MADE}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    # The usage in the event with the end, and no event for the end of the stream.
    cost, _ = limited.cost("chat", [event(last)])
    assert cost == pytest.approx(due("chat"))
    # The data of one event in several lines, and lines that are no events.
    text = json.dumps(EVENTS["responses"]()[-1], indent=1).replace("\n", "\ndata: ")
    cost, _ = limited.cost("responses", [b": ping\n\nretry: 3\n\n", f"data: {text}\n\n".encode()])
    assert cost == pytest.approx(due("responses"))
    # An event that is too large to be read hides no other one.
    large = event({"type": "response.output_text.delta", "delta": "x" * 5 * 1024**2})
    cost, _ = limited.cost("responses", [*in_pieces(large, 2**18), *stream("responses")])
    assert cost == pytest.approx(due("responses"))


def test_unknown_price_of_a_call_that_breaks_off_stays_unknown(tmp_path: Path) -> None:
    billing = Billing(tmp_path)
    request = Request.read(call_of("chat"), b'{"model": "of-my-own"}', unique=False)
    number = billing.account.set_aside(request)
    assert billing.account.ledger.spent.cost_if_known is None
    billing.account.settle(number, request, None, costs_nothing=False)
    assert billing.account.ledger.spent.cost_if_known is None


@pytest.fixture(scope="module")
def model() -> Iterator[Api]:
    with api() as server:
        yield server


_worker = iter(range(1, 250))


class Asked:
    """A call of a worker to an API that sends one event at a time."""

    def __init__(self, model: Api, process: RunningBroker, flavor: str, parts: list[bytes]) -> None:
        worker = next(_worker)
        process.grant(model.url, worker=worker, budget=1.0)
        self.ledger = process.state / f"{worker}-1.ndjson"
        self.go_on = threading.Semaphore(0)

        def one(part: bytes) -> Callable[[bytes], bytes]:
            def made(_: bytes) -> bytes:
                assert self.go_on.acquire(timeout=PATIENCE)
                return part

            return made

        model.answer = Answer(*map(one, parts), kind=SSE)
        self.connection = process.connection(worker)
        body = json.dumps(REQUESTS[flavor] | ({} if flavor == "gemini" else {"stream": True}))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        path = PATHS[flavor] + ("?alt=sse" if flavor == "gemini" else "")
        self.connection.request("POST", path, body, headers)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_worker_that_leaves_pays_what_was_set_aside(
    model: Api, process: RunningBroker, flavor: str
) -> None:
    events = stream(flavor)
    for count in range(len(events) + 1):
        ping = b": ping\n\n"
        asked = Asked(model, process, flavor, [*events[:count], *[ping] * 500])
        eventually(lambda asked=asked: read_ledger(asked.ledger).pending != {})
        # The event with the usage that the broker asked for is not shown to the worker.
        shown = b"".join(part for part in events[:count] if b'"choices": []' not in part)
        for _ in range(count):
            asked.go_on.release()
        if shown:
            response = asked.connection.getresponse()
            assert response.read(len(shown)) == shown
            # What the worker has read to its end is recorded before it can ask again.
            assert (read_ledger(asked.ledger).pending == {}) == (count == len(events))
            response.close()
        asked.connection.close()
        while read_ledger(asked.ledger).pending:
            asked.go_on.release()
            time.sleep(0.01)
        asked.go_on.release(500)
        cost = read_ledger(asked.ledger).cost
        if count == len(events):
            assert cost == pytest.approx(due(flavor))
        else:
            assert cost >= due(flavor, made=LIMIT), count


def test_worker_that_leaves_at_once_pays_what_the_answer_costs(
    model: Api, process: RunningBroker
) -> None:
    worker = next(_worker)
    process.grant(model.url, worker=worker, budget=1.0)
    model.answer = answer = Answer(b" ", _whole("chat"))
    answer.go_on.clear()
    connection = process.connection(worker)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connection.request("POST", PATHS["chat"], json.dumps(REQUESTS["chat"]), headers)
    ledger = process.state / f"{worker}-1.ndjson"
    eventually(lambda: read_ledger(ledger).pending != {})
    connection.close()
    answer.go_on.set()
    eventually(lambda: not read_ledger(ledger).pending)
    assert read_ledger(ledger).cost == pytest.approx(due("chat"))


@pytest.mark.parametrize("status", [200, 503])
def test_compressed_answer_is_paid_though_it_is_refused(
    model: Api, process: RunningBroker, status: int
) -> None:
    worker = next(_worker)
    process.grant(model.url, worker=worker, budget=1.0)
    coded = {"Content-Encoding": "gzip"}
    model.answer = Answer(gzip.compress(_whole("chat")), headers=coded, status=status)
    reply = process.call(body=REQUESTS["chat"], worker=worker)
    assert reply.code == "upstream_encoding"
    cost = read_ledger(process.state / f"{worker}-1.ndjson").cost_if_known
    assert cost == (0.0 if status == 503 else pytest.approx(due("chat", 200, LIMIT), rel=0.05))


def test_answer_that_the_server_cuts_off_is_paid(model: Api, process: RunningBroker) -> None:
    for status, least in ((200, due("messages", made=LIMIT)), (529, 0.0)):
        worker = next(_worker)
        process.grant(model.url, worker=worker, budget=1.0)
        model.answer = Answer(*stream("messages")[:-1], kind=SSE, breaks=True, status=status)
        with suppress(http.client.HTTPException):
            process.call(PATHS["messages"], REQUESTS["messages"], worker=worker)
        ledger = process.state / f"{worker}-1.ndjson"
        eventually(lambda ledger=ledger: not read_ledger(ledger).pending)
        assert (read_ledger(ledger).cost >= least) == (status == 200 or least == 0.0)
        assert (read_ledger(ledger).cost == 0.0) == (status == 529)
