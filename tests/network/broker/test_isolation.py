"""One worker's calls cost the others nothing; a broker that dies comes back with its ledgers."""

import gzip
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.network.broker.ledger import read_ledger
from tests.network.broker.upstream import CHAT, TOKEN, Api, RunningBroker, address_of, api, complete
from tests.support.live import eventually

ATTACKER, SIBLING = 1, 2
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: broker\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module")
def model() -> Iterator[Api]:
    with api() as server:
        server.answer = complete()
        yield server


@pytest.fixture
def process(model: Api, tmp_path: Path) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path)
    running.start()
    for worker in (ATTACKER, SIBLING):
        running.grant(model.url, worker=worker, budget=1000.0)
    yield running
    running.kill()


def send(process: RunningBroker, *parts: bytes, wait: bool = True) -> bytes:
    """Send bytes from the attacker's address; return the beginning of the answer."""
    source = (address_of(ATTACKER), 0)
    with socket.create_connection(("127.0.0.1", process.port), 3, source) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            return connection.recv(1000) if wait else b""
        except OSError:
            return b""


def with_body(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in (f"Content-Length: {len(body)}", *headers))
    return f"{HEAD}{lines}\r\n".encode() + body


LISTS = b'{"model": "gpt-4o", "a": [' + b"[]," * 10_000_000 + b"[]]}"
ATTACKS: dict[str, tuple[bytes, ...]] = {
    "32 kB of gzip": (with_body(gzip.compress(LISTS), "Content-Encoding: gzip"),),
    "32 MB of lists": (with_body(LISTS),),
    "32 MB in each other": (with_body(b"[" * 15_000_000 + b"]" * 15_000_000),),
    "escapes": (with_body(b'{"model": "' + b"\\u00e9" * 5_000_000 + b'"}'),),
    "open text": (with_body(b'{"model": "' + b'\\"' * 15_000_000),),
    "many headers": (HEAD.encode() + b"".join(b"a%d: b\r\n" % n for n in range(100_000)),),
    "long header": (HEAD.encode() + b"a: " + b"b" * 30_000_000,),
    "chunks without end": (
        f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode(),
        *([b"1\r\na\r\n" * 100_000] * 20),
    ),
    "pipelining": (with_body(b'{"model": "gpt-4o", "messages": []}') * 2000,),
    "garbage": (os.urandom(1_000_000),),
}


def median_of_calls(process: RunningBroker, calls: int = 15) -> float:
    """Return the median number of seconds of the sibling's calls, all of which must succeed."""
    times = []
    for _ in range(calls):
        started = time.monotonic()
        reply = process.call(worker=SIBLING, body={"model": "gpt-4o", "messages": []})
        times.append(time.monotonic() - started)
        assert reply.status == 200
    return statistics.median(times)


@pytest.mark.variants("32 kB of gzip", "32 MB of lists", "pipelining")
@pytest.mark.parametrize("name", ATTACKS)
def test_sibling_is_served_while_a_worker_attacks(process: RunningBroker, name: str) -> None:
    parts, over = ATTACKS[name], threading.Event()
    quiet = median_of_calls(process)

    def attack() -> None:
        while not over.is_set():
            send(process, *parts)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(attack)
        busy = median_of_calls(process)
        over.set()
    # Both share the processors of a busy machine; a call that waited for the other worker's body
    # would take a hundred times as long.
    assert busy < max(20 * quiet, 0.2)
    assert read_ledger(process.state / f"{SIBLING}-1.ndjson").calls == 30


def test_compressed_body_is_refused_unread(process: RunningBroker, model: Api) -> None:
    model.seen.clear()
    answer = send(process, with_body(gzip.compress(LISTS), "Content-Encoding: gzip"))
    assert b" 415 " in answer
    assert b"unsupported_encoding" in answer
    assert model.seen == []


def hold(process: RunningBroker, count: int, data: bytes) -> list[socket.socket]:
    """Open connections from the attacker's address, and send data that is no whole request."""
    source, found = (address_of(ATTACKER), 0), []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", process.port), 30, source)
        connection.sendall(data)
        found.append(connection)
    return found


@pytest.mark.parametrize(
    "data", [b"", HEAD.encode(), f"{HEAD}Content-Length: 33000000\r\n\r\n".encode()],
    ids=["silent", "headers", "bodies"],
)  # fmt: skip
def test_slow_requests_take_no_place_of_a_sibling(process: RunningBroker, data: bytes) -> None:
    connections = hold(process, 300, data)
    assert median_of_calls(process, 5) < 5
    for connection in connections:
        connection.close()


def children(process: RunningBroker) -> list[int]:
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in task.read_text().split()]


def test_process_that_dies_is_started_again_with_its_ledger(
    process: RunningBroker, model: Api
) -> None:
    body = {"model": "gpt-4o", "messages": [], "max_tokens": 10}
    process.grant(model.url, worker=ATTACKER, budget=0.004)
    assert process.call(worker=ATTACKER, body=body).status == 200
    for child in children(process):
        os.kill(child, signal.SIGKILL)
    eventually(lambda: children(process) == [])
    # What was spent before the process died is still spent.
    assert process.call(worker=ATTACKER, body=body).status == 200
    assert process.call(worker=ATTACKER, body=body).code == "budget_exceeded"
    assert process.call(worker=SIBLING).status == 200


def test_processes_of_workers_that_ended_end(process: RunningBroker) -> None:
    for worker in (ATTACKER, SIBLING):
        assert process.call(worker=worker).status == 200
    assert len(children(process)) == 2
    (process.grants / f"{address_of(ATTACKER)}.json").unlink()
    eventually(lambda: len(children(process)) == 1)
    assert process.call(worker=SIBLING).status == 200
    assert process.call(worker=ATTACKER).code == "invalid_gateway_token"


def test_no_process_outlives_the_broker(process: RunningBroker) -> None:
    assert process.call(worker=SIBLING).status == 200
    (child,) = children(process)
    process.kill()
    gone: Callable[[], bool] = lambda: not Path(f"/proc/{child}").exists()  # noqa: E731
    eventually(gone)


def test_error_of_an_api_names_its_host(process: RunningBroker) -> None:
    process.grant("http://127.0.0.1:1/secret-path", worker=ATTACKER)
    reply = process.call(worker=ATTACKER)
    assert "127.0.0.1:1 " in json.loads(reply.body)["error"]["message"]
    assert b"secret-path" not in reply.body
