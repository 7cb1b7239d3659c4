"""Tests of the credential broker as a process, with an API of a model on this machine."""

import gzip
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.network.broker.ledger import Spent, read_ledger
from tests.network.broker.upstream import (
    CHAT,
    KEY,
    TOKEN,
    Answer,
    Api,
    RunningBroker,
    api,
    complete,
    exhausting,
)
from tests.support.live import PATIENCE, eventually

COST = 1000 * 2.5e-6 + 100 * 10e-6
"""Cost in USD of an answer of gpt-4o with `USAGE`."""


@pytest.fixture(scope="module")
def model() -> Iterator[Api]:
    with api() as server:
        yield server


_worker = iter(range(1, 250))


@pytest.fixture
def worker(model: Api, process: RunningBroker) -> int:
    """A worker with an address of its own, and a grant without limits."""
    number = next(_worker)
    model.answer = complete()
    model.seen.clear()
    process.grant(model.url, worker=number)
    return number


def test_key_takes_the_place_of_the_token(model: Api, process: RunningBroker, worker: int) -> None:
    for given, sent in (
        ({"Authorization": f"Bearer {TOKEN}"}, ("Authorization", f"Bearer {KEY}")),
        ({"x-api-key": TOKEN}, ("x-api-key", KEY)),
        ({"x-goog-api-key": TOKEN}, ("x-goog-api-key", KEY)),
    ):
        model.seen.clear()
        assert process.call(worker=worker, headers=given).status == 200
        ((line, headers, _),) = model.seen
        assert line == "POST /v1/chat/completions"
        assert headers[sent[0]] == sent[1]
        assert TOKEN not in str(headers)


def test_token_in_the_query_is_not_passed_on(
    model: Api, process: RunningBroker, worker: int
) -> None:
    path = "/gemini/v1beta/models/gemini-2.5-pro:streamGenerateContent"
    reply = process.call(f"{path}?alt=sse&key={TOKEN}&x=1", worker=worker, headers={})
    assert reply.status == 200
    ((line, headers, _),) = model.seen
    assert line == "POST /v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    assert headers["x-goog-api-key"] == KEY


@pytest.mark.parametrize("token", ["", "wrong", TOKEN.upper(), f"{TOKEN}x", "\u00fc"])
def test_wrong_token_is_refused(
    model: Api, process: RunningBroker, worker: int, token: str
) -> None:
    headers = {"Authorization": f"Bearer {token}".encode("latin-1").decode("latin-1")}
    reply = process.call(worker=worker, headers=headers)
    assert (reply.status, reply.code) == (401, "invalid_gateway_token")
    assert model.seen == []


def test_token_is_bound_to_its_address(model: Api, process: RunningBroker, worker: int) -> None:
    other = next(_worker)
    process.grant(model.url, worker=other, token="another")
    reply = process.call(worker=other)
    assert (reply.status, reply.code) == (401, "invalid_gateway_token")
    # An address without a grant.
    assert process.call(worker=next(_worker)).code == "invalid_gateway_token"
    assert process.call(worker=worker).status == 200


def test_grant_that_is_withdrawn_ends(process: RunningBroker, worker: int) -> None:
    assert process.call(worker=worker).status == 200
    (process.grants / f"127.0.0.{worker + 1}.json").unlink()
    assert process.call(worker=worker).code == "invalid_gateway_token"


def test_other_calls_are_refused(model: Api, process: RunningBroker, worker: int) -> None:
    for method, path in (
        ("GET", "/openai/v1/files"),
        ("POST", "/openai/v1/files"),
        ("POST", "/openai/v1/batches"),
        ("POST", "/anthropic/v1/messages/batches"),
        ("GET", "/openai/v1/organization/admin_api_keys"),
        ("GET", "/openai/v1/realtime"),
        ("DELETE", "/openai/v1/models/gpt-4o"),
        ("POST", "/openai/v1/chat/completions/../files"),
        ("POST", "/openai/v1/chat/completions%2f..%2ffiles"),
        ("POST", "/openai/v1/chat%2fcompletions"),
        ("POST", "/openai//v1/chat/completions"),
        ("POST", "/openai/v1/./chat/completions"),
        ("POST", "/openai/v1/chat/completions/"),
        ("POST", "/openai/v1/chat/completionsx"),
        ("POST", "/unknown/v1/chat/completions"),
        ("POST", "/gemini/v1beta/models/x/y:generateContent"),
        ("POST", "/gemini/v1beta/files"),
        ("POST", "http://127.0.0.1:1/openai/v1/chat/completions"),
    ):
        reply = process.call(path, method=method, worker=worker)
        assert (reply.status, reply.code) == (403, "call_not_allowed"), path
    assert model.seen == []


def test_listed_calls_pass(model: Api, process: RunningBroker, worker: int) -> None:
    for method, path in (
        ("GET", "/openai/v1/models"),
        ("GET", "/openai/v1/models/gpt-4o"),
        ("POST", "/openai/v1/chat/completions"),
        ("POST", "/openai/chat/completions"),
        ("POST", "/openai/v1/responses"),
        ("POST", "/anthropic/v1/messages?beta=true"),
        ("POST", "/anthropic/v1/messages/count_tokens"),
        ("POST", "/gemini/v1beta/models/gemini-2.5-pro:generateContent"),
    ):
        assert process.call(path, method=method, worker=worker).status == 200, path
        assert model.seen[-1][0] == f"{method} /{path.split('/', 2)[2]}"


def test_headers_that_are_not_listed_are_not_passed_on(
    model: Api, process: RunningBroker, worker: int
) -> None:
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "X-HTTP-Method-Override": "DELETE",
        "Cookie": "a=b",
        "X-Forwarded-For": "1.2.3.4",
        "anthropic-version": "2023-06-01",
    }
    assert process.call(worker=worker, headers=headers).status == 200
    sent = {name.lower() for name in model.seen[0][1]}
    assert sent & {"x-http-method-override", "cookie", "x-forwarded-for"} == set()
    assert "anthropic-version" in sent


def test_models_that_are_not_listed_are_refused(
    model: Api, process: RunningBroker, worker: int
) -> None:
    process.grant(model.url, worker=worker, models=("gpt-4o", "claude-*"))
    for name, status in (("gpt-4o", 200), ("openai/gpt-4o", 200), ("claude-x", 200), ("o3", 403)):
        reply = process.call(body={"model": name, "messages": []}, worker=worker)
        assert reply.status == status, name
    assert reply.code == "model_not_allowed"
    path = "/gemini/v1beta/models/gemini-2.5-pro:generateContent"
    assert process.call(path, worker=worker).code == "model_not_allowed"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": 1}', b"[" * 100_000])
def test_body_without_a_model_is_refused(
    model: Api, process: RunningBroker, worker: int, body: bytes
) -> None:
    reply = process.call(body=body, worker=worker)
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert model.seen == []


def test_large_body_is_refused(model: Api, process: RunningBroker, worker: int) -> None:
    connection = process.connection(worker)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Length": str(33 * 1024**2)}
    connection.request("POST", CHAT, headers=headers)
    assert connection.getresponse().status == 413
    connection.close()
    assert model.seen == []


def test_redirects_are_not_followed(model: Api, process: RunningBroker, worker: int) -> None:
    for status in (301, 302, 303, 307, 308):
        model.answer = Answer(status=status, headers={"Location": f"{model.url}/elsewhere"})
        reply = process.call(worker=worker)
        assert (reply.status, reply.code) == (502, "upstream_redirect")
        assert "location" not in reply.headers
    assert {line for line, _, _ in model.seen} == {"POST /v1/chat/completions"}


def test_compressed_answers_are_refused(model: Api, process: RunningBroker, worker: int) -> None:
    echo = gzip.compress(json.dumps({"again": KEY}).encode())
    model.answer = Answer(echo, headers={"Content-Encoding": "gzip"})
    reply = process.call(worker=worker)
    assert (reply.status, reply.code) == (502, "upstream_encoding")
    assert echo not in reply.body
    model.answer = Answer(b"{}", headers={"Content-Encoding": "Identity"})
    assert process.call(worker=worker).body == b"{}"


def test_key_is_removed_from_answers(model: Api, process: RunningBroker, worker: int) -> None:
    echo = json.dumps({"headers": {"authorization": f"Bearer {KEY}"}, "again": KEY * 2}).encode()
    for kind in ("application/json", "text/event-stream"):
        for status in (200, 401):
            model.answer = Answer(echo, kind=kind, status=status, headers={"x-echo": f"a {KEY}"})
            reply = process.call(worker=worker)
            assert reply.status == status
            assert KEY.encode() not in reply.body
            assert reply.body.count(b"[redacted:openai]") == 3
            assert reply.headers["x-echo"] == "a [redacted:openai]"


def test_key_is_removed_wherever_it_is_split(
    model: Api, process: RunningBroker, worker: int
) -> None:
    text = b'data: {"a": "' + KEY.encode() + b'"}\n\n'
    start = text.index(KEY.encode())
    for cut in range(start, start + len(KEY) + 1):
        model.answer = Answer(text[:cut], text[cut:], kind="text/event-stream")
        reply = process.call(worker=worker)
        assert reply.body == b'data: {"a": "[redacted:openai]"}\n\n', cut


def test_parts_of_a_stream_pass_when_they_arrive(
    model: Api, process: RunningBroker, worker: int
) -> None:
    events = [f'data: {{"choices": [{{"n": {n}}}]}}\n\n'.encode() for n in range(2)]
    for stream in (False, True):
        model.answer = answer = Answer(*events, kind="text/event-stream")
        answer.go_on.clear()
        connection = process.connection(worker)
        body = json.dumps({"model": "gpt-4o", "stream": stream})
        connection.request("POST", CHAT, body, {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        # The API sends the second part only after the first has arrived here.
        assert response.read(len(events[0])) == events[0]
        answer.go_on.set()
        assert response.read() == events[1]
        connection.close()


def test_cost_and_tokens_are_measured(process: RunningBroker, worker: int) -> None:
    assert process.call(worker=worker).status == 200
    assert process.call(worker=worker).status == 200
    spent = read_ledger(process.state / f"{worker}-1.ndjson")
    assert spent.calls == 2
    assert spent.tokens == 2200
    assert spent.cost_if_known == pytest.approx(2 * COST)


def test_usage_of_a_stream_is_measured_and_hidden(
    model: Api, process: RunningBroker, worker: int
) -> None:
    text = b'data: {"model": "gpt-4o", "choices": [{"delta": {"content": "hi"}}]}\n\n'
    usage = json.dumps({"model": "gpt-4o", "choices": [], "usage": {
        "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
    }}).encode()  # fmt: skip
    end = b"data: [DONE]\n\n"
    model.answer = Answer(text, b"data: " + usage + b"\n\n", end, kind="text/event-stream")
    reply = process.call(body={"model": "gpt-4o", "stream": True}, worker=worker)
    assert reply.body == text + end
    assert json.loads(model.seen[0][2])["stream_options"] == {"include_usage": True}
    assert read_ledger(process.state / f"{worker}-1.ndjson").cost_if_known == pytest.approx(COST)
    # A program that asks for the usage gets it.
    asked = {"model": "gpt-4o", "stream": True, "stream_options": {"include_usage": True}}
    assert usage in process.call(body=asked, worker=worker).body


def test_calls_at_once_never_spend_more_than_the_budget(model: Api, process: RunningBroker) -> None:
    body = {"model": "gpt-4o", "messages": [], "max_tokens": 1000}
    most = (len(json.dumps(body)) * 2.5e-6) + 1000 * 10e-6
    for answer in (
        exhausting(),
        complete(usage=None),
        Answer(b'{"model": "gpt-4o"', breaks=True),
    ):
        number = next(_worker)
        process.grant(model.url, worker=number, budget=2.5 * most)
        model.answer = answer
        replies = _at_once(process, number, body, calls=30)
        spent = _settled(process.state / f"{number}-1.ndjson")
        assert spent.most_cost <= 2.5 * most
        assert "budget" in spent.refused
        refused = [reply for reply in replies if reply is not None and reply[0] == 402]
        assert refused
        assert all(code == "budget_exceeded" for _, code in refused)


def test_calls_that_the_worker_leaves_never_spend_more_than_the_budget(
    model: Api, process: RunningBroker, worker: int
) -> None:
    process.grant(model.url, worker=worker, budget=0.025)
    event = b'data: {"choices": [{}]}\n\n'
    model.answer = Answer(*([event] * 200), kind="text/event-stream")
    body = json.dumps({"model": "gpt-4o", "stream": True, "max_tokens": 1000})

    def leave(_: int) -> None:
        connection = process.connection(worker)
        connection.request("POST", CHAT, body, {"Authorization": f"Bearer {TOKEN}"})
        connection.close()

    with ThreadPoolExecutor(30) as pool:
        list(pool.map(leave, range(30)))
    ledger = process.state / f"{worker}-1.ndjson"
    model.answer = exhausting()
    short = {"model": "gpt-4o", "messages": [], "max_tokens": 10}
    # A call with an answer passes only when calls that were left have ended.
    eventually(lambda: process.call(body=short, worker=worker).code != "gateway_rate_limit")
    assert _settled(ledger).cost <= 0.025


def test_thirty_streams_at_once_are_never_held_back(model: Api, process: RunningBroker) -> None:
    event = b'data: {"choices": [{"delta": {"content": "word"}}]}\n\n'
    workers = [next(_worker) for _ in range(30)]
    arrived = {worker: threading.Semaphore(1) for worker in workers}

    def next_event(body: bytes) -> bytes:
        # The API sends an event only when the event before it has arrived.
        assert arrived[int(json.loads(body)["user"])].acquire(timeout=PATIENCE)
        return event

    model.answer = Answer(*([next_event] * 20), kind="text/event-stream")

    def follow(worker: int) -> None:
        connection = process.connection(worker)
        body = json.dumps({"model": "gpt-4o", "stream": True, "user": str(worker)})
        connection.request("POST", CHAT, body, {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        for _ in range(20):
            assert response.read(len(event)) == event
            arrived[worker].release()
        assert response.read() == b""
        connection.close()

    for worker in workers:
        process.grant(model.url, worker=worker)
    with ThreadPoolExecutor(30) as pool:
        list(pool.map(follow, workers))


def _settled(ledger: Path) -> Spent:
    """Return the sums of a ledger when all calls have ended."""
    eventually(lambda: not read_ledger(ledger).pending, "the end of all calls")
    return read_ledger(ledger)


def _at_once(
    process: RunningBroker, worker: int, body: Any, *, calls: int
) -> list[tuple[int, str] | None]:
    found: list[tuple[int, str] | None] = []

    def call() -> None:
        try:
            # A worker may make 16 calls at the same time.
            while (reply := process.call(body=body, worker=worker)).code == "gateway_rate_limit":
                time.sleep(0.01)
            found.append((reply.status, reply.code))
        except (OSError, http.client.HTTPException):
            found.append(None)  # the answer broke off

    threads = [threading.Thread(target=call) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_answer_is_limited_to_the_rest_of_the_budget(
    model: Api, process: RunningBroker, worker: int
) -> None:
    process.grant(model.url, worker=worker, budget=0.01)
    body = {"model": "gpt-4o", "messages": [], "max_tokens": 100_000}
    assert process.call(body=body, worker=worker).status == 200
    sent = json.loads(model.seen[0][2])["max_tokens"]
    assert 900 < sent < 1000
    body.pop("max_tokens")
    assert process.call(body=body, worker=worker).status == 200
    assert 0 < json.loads(model.seen[1][2])["max_completion_tokens"] < 1000


def test_tokens_are_limited(model: Api, process: RunningBroker, worker: int) -> None:
    process.grant(model.url, worker=worker, tokens=2000)
    assert process.call(worker=worker).status == 200
    assert json.loads(model.seen[0][2])["max_completion_tokens"] < 2000
    model.answer = complete(usage={"prompt_tokens": 900, "completion_tokens": 0})
    assert process.call(worker=worker).status == 200
    assert process.call(worker=worker).code == "budget_exceeded"


def test_budget_needs_a_price(model: Api, process: RunningBroker, worker: int) -> None:
    body = {"model": "of-my-own", "messages": []}
    assert process.call(body=body, worker=worker).status == 200
    process.grant(model.url, worker=worker, budget=1.0)
    reply = process.call(body=body, worker=worker)
    assert reply.code == "model_without_price"
    assert b"--price MODEL=IN/OUT" in reply.body
    spent = read_ledger(process.state / f"{worker}-1.ndjson")
    assert spent.unpriced == "the model `of-my-own`"


def test_prices_of_the_user_come_first(model: Api, process: RunningBroker, worker: int) -> None:
    prices = {"of-my-own": (3.0, 20.0), "gpt-4o": (100.0, 200.0)}
    process.grant(model.url, worker=worker, budget=1.0, prices=prices)
    ledger, paid = process.state / f"{worker}-1.ndjson", 0.0
    for asked, answered in (
        ("of-my-own", "of-my-own-2026-11-01"),
        ("openai/of-my-own", "of-my-own"),
        ("of-my-own", "gpt-4o-mini"),
        ("gpt-4o", "gpt-4o"),
    ):
        model.answer = complete(model=answered)
        reply = process.call(
            body={"model": asked, "messages": [], "max_tokens": 500}, worker=worker
        )
        assert reply.status == 200, asked
        given, made = prices[asked.rpartition("/")[2]]
        paid += (1000 * given + 100 * made) / 1e6
        assert read_ledger(ledger).cost_if_known == pytest.approx(paid), asked
    # A price is that of the whole name.
    other = {"model": "of-my-own:online", "messages": []}
    assert process.call(body=other, worker=worker).code == "model_without_price"


def test_unknown_price_is_not_a_cost_of_nothing(
    model: Api, process: RunningBroker, worker: int
) -> None:
    model.answer = complete(model="of-my-own")
    assert process.call(body={"model": "of-my-own"}, worker=worker).status == 200
    spent = read_ledger(process.state / f"{worker}-1.ndjson")
    assert (spent.cost_if_known, spent.tokens) == (None, 1100)


def test_errors_cost_nothing(model: Api, process: RunningBroker, worker: int) -> None:
    model.answer = Answer(b'{"error": {}}', status=500)
    assert process.call(worker=worker).status == 500
    spent = read_ledger(process.state / f"{worker}-1.ndjson")
    assert (spent.cost_if_known, spent.tokens, spent.pending) == (0.0, 0, {})


def test_calls_a_minute_are_limited(model: Api, process: RunningBroker, worker: int) -> None:
    process.grant(model.url, worker=worker, calls_per_minute=2)
    assert [process.call(worker=worker).status for _ in range(3)] == [200, 200, 429]
    reply = process.call(worker=worker)
    assert (reply.code, 0 < int(reply.headers["retry-after"]) <= 60) == ("gateway_rate_limit", True)
    # The same grant in another file, as a place gets it that copies files.
    process.grant(model.url, worker=worker, calls_per_minute=2)
    assert process.call(worker=worker).code == "gateway_rate_limit"
    # The refusal of the API itself has no mark of the broker.
    other = next(_worker)
    process.grant(model.url, worker=other)
    model.answer = Answer(b"{}", status=429)
    assert process.call(worker=other).code == ""


def test_unreachable_api_is_reported(process: RunningBroker, worker: int) -> None:
    process.grant("http://127.0.0.1:1/secret-path", worker=worker)
    reply = process.call(worker=worker)
    assert (reply.status, reply.code) == (502, "upstream_unreachable")
    assert b"secret-path" not in reply.body
    assert read_ledger(process.state / f"{worker}-1.ndjson").cost_if_known == 0.0


def test_killed_broker_forgets_nothing(model: Api, tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path)
    broker.start()
    try:
        broker.grant(model.url, budget=0.02)
        model.answer = complete()
        assert broker.call().status == 200
        model.answer = waiting = Answer(b"{", b"}")
        waiting.go_on.clear()
        connection = broker.connection()
        body = json.dumps({"model": "gpt-4o", "max_tokens": 1500})
        connection.request("POST", CHAT, body, {"Authorization": f"Bearer {TOKEN}"})
        # The broker has passed the call on, and has not seen the end of the answer.
        connection.getresponse()
        before = read_ledger(broker.state / "1-1.ndjson")
        broker.kill()
        connection.close()
        waiting.go_on.set()
        broker.start()
        after = read_ledger(broker.state / "1-1.ndjson")
        assert after.most_cost == before.most_cost == pytest.approx(COST + 0.015, rel=0.02)
        model.answer = complete()
        body = {"model": "gpt-4o", "messages": [], "max_tokens": 600}
        assert broker.call(body=body).status == 200
        assert json.loads(model.seen[-1][2])["max_tokens"] < 150
    finally:
        broker.kill()


def test_stream_that_the_worker_leaves_is_charged(
    model: Api, process: RunningBroker, worker: int
) -> None:
    process.grant(model.url, worker=worker, budget=1.0)
    event = b'data: {"choices": [{}]}\n\n'
    model.answer = answer = Answer(*([event] * 200), kind="text/event-stream")
    answer.go_on.clear()
    connection = process.connection(worker)
    body = json.dumps({"model": "gpt-4o", "stream": True, "max_tokens": 1000})
    connection.request("POST", CHAT, body, {"Authorization": f"Bearer {TOKEN}"})
    connection.getresponse().read(len(event))
    connection.close()
    answer.go_on.set()
    ledger = process.state / f"{worker}-1.ndjson"
    eventually(lambda: not read_ledger(ledger).pending)
    assert read_ledger(ledger).cost == pytest.approx(0.01, rel=0.05)
