"""A stand-in for the API server of a cluster."""

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.kubernetes.cluster import Cluster

Stream = Callable[[socket.socket], object]
"""Speaks on a WebSocket after its handshake."""


@dataclass(frozen=True)
class Refusal:
    """An answer of HTTP, or none, instead of a handshake."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class Api:
    """Answers by path; a path without an answer is 404."""

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    """Objects that were created."""
    streams: list[Stream | Refusal] = field(default_factory=list)
    """What the next WebSockets get; without one of these, they get the answers of their paths."""
    silent: int = 0
    """Number of requests that get no answer."""
    forbids: bool = False
    allowed: tuple[str, ...] = ()
    """The only paths that are not forbidden then."""
    failures: list[tuple[int, str]] = field(default_factory=list)
    """Status and body of the next answers."""
    offered: list[str] = field(default_factory=list)
    """The protocols that WebSockets offered."""
    token: str = ""
    """The only token with which requests are allowed; empty: any, or none."""


def speak(request: BaseHTTPRequestHandler, given: Stream | Refusal) -> None:
    """Answer the request for a WebSocket."""
    if isinstance(given, Refusal):
        if given.status:
            request.send_response(given.status)
            for name, value in given.headers:
                request.send_header(name, value)
            request.send_header("Content-Length", str(len(given.body)))
            request.end_headers()
            request.wfile.write(given.body)
        return
    key = request.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    known = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    protocol = request.headers["Sec-WebSocket-Protocol"].partition(",")[0]
    request.send_response(101)
    for name, value in (
        ("Upgrade", "websocket"), ("Connection", "Upgrade"),
        ("Sec-WebSocket-Protocol", protocol), ("Sec-WebSocket-Accept", known),
    ):  # fmt: skip
        request.send_header(name, value)
    request.end_headers()
    request.connection.settimeout(20)
    with suppress(OSError):  # the client may hang up
        given(request.connection)
        # Input that nobody reads would take back what was said.
        request.connection.shutdown(socket.SHUT_WR)
        while request.connection.recv(65536):
            pass


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def kubeconfig(tmp_path: Path, api: Api) -> Iterator[Path]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            path = self.path.partition("?")[0]
            api.asked.append((self.command, path))
            if api.silent:
                api.silent -= 1
                self.close_connection = True
                return
            found = api.answers.get(path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if data:
                api.sent.append(json.loads(data))
            if api.streams and "Upgrade" in self.headers:
                self.close_connection = True
                api.offered.append(self.headers["Sec-WebSocket-Protocol"])
                speak(self, api.streams.pop(0))
                return
            if api.failures:
                status, body = api.failures.pop(0)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())
                return
            if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                self.send_response(401)
                self.end_headers()
                self.wfile.write(b'{"reason": "Unauthorized"}')
                return
            is_forbidden = api.forbids and path not in api.allowed
            self.send_response(403 if is_forbidden else 200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found or {"reason": "NotFound"}).encode())

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        settings = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "namespace": "agents"}}],
            "current-context": "x",
        }
        settings["contexts"][0]["context"]["user"] = "u"  # type: ignore[index]
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(settings))
        yield file
        server.shutdown()


@pytest.fixture
def cluster(kubeconfig: Path) -> Cluster:
    return Cluster(kubeconfig=kubeconfig)
