"""Tests of an engine that does not answer, or answers nonsense: each ends soon, in one line."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.base.errors import EngineError, EngineUnavailableError
from orchestrator.engine.docker import DockerEngine, connection
from orchestrator.engine.docker.image_files import read_file
from orchestrator.engine.docker.porter_calls import Porter, _Talk
from orchestrator.engine.docker.process import _ShortCommand, run_in
from orchestrator.engine.places import porter_calls
from tests.support.recorded_engines import UnixServer, serving

Say = Callable[[BaseHTTPRequestHandler], None]
UPGRADE = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def frame(data: bytes) -> bytes:
    return b"\1\0\0\0" + len(data).to_bytes(4, "big") + data


def silent(handler: BaseHTTPRequestHandler) -> None:
    """Wait until the client gives up."""
    handler.rfile.read()


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        handler.wfile.write(bytes(2**16))


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{"Version": "1')


def no_json(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")


class Engine:
    """An engine whose answers to commands in containers, and to requests for files, are given."""

    def __init__(self) -> None:
        self.command: Say = silent
        self.file: Say = silent

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if handler.path.endswith("/exec"):
            body = json.dumps({"Id": "e"}).encode()
            head = f"HTTP/1.1 201 Created\r\nContent-Length: {len(body)}\r\n\r\n"
            handler.wfile.write(head.encode() + body)
        elif handler.path.endswith("/start"):
            handler.wfile.write(UPGRADE)
            self.command(handler)
        else:
            self.file(handler)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a failed read not be repeated: here, every further connection fails as well."""
    monkeypatch.setattr(porter_calls, "_ATTEMPTS", 1)


@pytest.fixture
def client(tmp_path: Path, engine: Engine) -> Iterator[docker.APIClient]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):  # the client gave up
                engine.answer(self)

        do_POST = do_GET

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: Any) -> None:
            pass

    path = tmp_path / "s"
    with serving(UnixServer(str(path), Answers)):
        made = docker.APIClient(base_url=f"unix://{path}", version="1.41", timeout=1)
        yield made
        made.close()


def test_command_that_never_answers_is_an_error(
    client: docker.APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ShortCommand, "_patience", 0.2)
    with pytest.raises(EngineUnavailableError, match=r"\Acannot read .*\Z"):
        run_in(client, "c", ("true",))


def test_command_that_prints_without_end_is_an_error(
    client: docker.APIClient, engine: Engine
) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        while True:
            handler.wfile.write(frame(bytes(2**20)))

    engine.command = endless
    with pytest.raises(EngineError, match="too much"):
        run_in(client, "c", ("true",))


def test_place_that_never_answers_is_an_error(
    client: docker.APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Talk, "_patience", 0.2)
    porter = Porter(client, "c")
    with pytest.raises(EngineUnavailableError):
        porter.call("journal", "0")
    with pytest.raises(EngineUnavailableError):
        list(porter.read({"agent.stdout": 0}))


@pytest.mark.parametrize(
    "said",
    [
        b"not json\n", b"[]\n", b"7\n", b"\xff\n", b'{"name": "agent.stdout"}\n', b"\n" * 20_000,
        b'{"name": "agent.stdout", "at": 5, "length": 1, "sha256": ""}\nx',
        b'{"name": "agent.stdout", "at": 0, "length": 1000000000, "sha256": ""}\nx',
        b'{"name": "agent.stdout", "at": 0, "length": -1, "sha256": ""}\nx',
        b'{"name": "agent.stdout", "at": 0, "length": "1", "sha256": ""}\nx',
        b'{"name": "other.stdout", "at": 0, "length": 1, "sha256": ""}\nx',
        b'{"name": "agent.stdout", "at": 0, "length": 1, "sha256": ""}\nx',
        b'{"name": "agent.stdout", "at": 0, "length": 9, "sha256": ""}\nx',
    ],
)  # fmt: skip
def test_nonsense_in_place_of_output_is_an_error(
    client: docker.APIClient, engine: Engine, said: bytes
) -> None:
    engine.command = lambda handler: handler.wfile.write(frame(said))  # type: ignore[assignment,return-value]
    with pytest.raises(EngineError):
        list(Porter(client, "c").read({"agent.stdout": 0}))


@pytest.mark.parametrize("said", [b"not json\n", b"[]\n", b"null\n", b'{"error": "no"}\n', b""])
def test_nonsense_in_place_of_an_answer_is_an_error(
    client: docker.APIClient, engine: Engine, said: bytes
) -> None:
    engine.command = lambda handler: handler.wfile.write(frame(said))  # type: ignore[assignment,return-value]
    with pytest.raises(EngineError):
        Porter(client, "c").state("agent")


def file_answer(stat: str, body: bytes, length: int | None = None) -> Say:
    def say(handler: BaseHTTPRequestHandler) -> None:
        size = len(body) if length is None else length
        head = f"HTTP/1.1 200 OK\r\nX-Docker-Container-Path-Stat: {stat}\r\n"
        handler.wfile.write(f"{head}Content-Length: {size}\r\n\r\n".encode() + body)

    return say


STAT = "eyJuYW1lIjoiZiIsIm1vZGUiOjQyMH0="  # {"name":"f","mode":420}


@pytest.mark.parametrize(
    "said",
    [
        file_answer(STAT, b"x" * 2048),
        file_answer(STAT, b""),
        file_answer(STAT, b"x" * 100, length=2048),
        file_answer(STAT, bytes(2**20)),
        file_answer("e30=", b""),
        file_answer("bm90aGluZw==", b""),
        silent,
    ],
    ids=["garbage", "empty", "cut", "too long", "no mode", "no description", "silent"],
)
def test_file_that_cannot_be_read_is_an_error(
    client: docker.APIClient, engine: Engine, said: Say
) -> None:
    engine.file = said
    with pytest.raises(EngineError):
        read_file(client, "c", "/f", most=10_000)


@pytest.mark.parametrize("said", [silent, endless, cut, no_json])
def test_answer_that_does_not_end_as_promised_is_an_error(
    tmp_path: Path, client: docker.APIClient, engine: Engine, said: Say,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert client.base_url
    engine.file = said
    monkeypatch.setattr(connection, "_TIMEOUT", 0.5)
    monkeypatch.setattr(connection, "_LARGEST", 2**20)
    with pytest.raises(EngineError) as caught:
        DockerEngine(f"unix://{tmp_path}/s").check(images=(), runtime=None)
    assert "\n" not in caught.value.message
