"""A model's API as a thread, and a credential broker as a process, for tests of the broker."""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from orchestrator.base.files.bundle import bundle
from orchestrator.network.broker.grant import Grant, Upstream, hash_token
from tests.support.live import PATIENCE
from tests.support.ports import free_port

KEY = "sk-canary-5f1e0c9d7b3a2468"
TOKEN = "token-of-worker-1"
PROGRAM = "orchestrator.network.broker.server"
CHAT = "/openai/v1/chat/completions"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


class Answer:
    """An answer of the API: parts, which are sent one by one."""

    def __init__(
        self,
        *parts: bytes | Callable[[bytes], bytes],
        status: int = 200,
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
        breaks: bool = False,
    ) -> None:
        self.parts = parts
        self.status = status
        self.kind = kind
        self.headers = headers or {}
        self.breaks = breaks
        """Whether the connection is cut before the end of the answer."""
        self.go_on = threading.Event()
        """Set to let the parts after the first go."""
        self.go_on.set()


def complete(model: str = "gpt-4o", usage: Any = USAGE) -> Answer:
    """Return a complete answer of OpenAI's API."""
    return Answer(json.dumps({"model": model, "choices": [{}], "usage": usage}).encode())


def exhausting() -> Answer:
    """Return an answer that is as long as the request allows."""

    def made(body: bytes) -> bytes:
        most = json.loads(body)["max_tokens"]
        usage = {"prompt_tokens": 10, "completion_tokens": most, "total_tokens": most + 10}
        return complete(usage=usage).parts[0]  # type: ignore[return-value]

    return Answer(made)


class _Handler(BaseHTTPRequestHandler):
    server: "Api"
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(size)
        self.server.seen.append((f"{self.command} {self.path}", dict(self.headers), body))
        found = self.server.answer
        answer = found if isinstance(found, Answer) else found(body)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for number, made in enumerate(answer.parts):
            if number:
                answer.go_on.wait(PATIENCE)
            part = made if isinstance(made, bytes) else made(body)
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        if answer.breaks:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Api(ThreadingHTTPServer):
    """The API, which gives the answer of the test."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Handler)
        self.answer: Answer | Callable[[bytes], Answer] = complete()
        """The answer, or a function that returns it for the body of a request."""
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        """Request line, headers and body of each request."""

    @property
    def url(self) -> str:
        """The base URL."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


@contextmanager
def api(host: str = "127.0.0.1") -> Iterator[Api]:
    """Serve an API."""
    with Api(host) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        if isinstance(server.answer, Answer):
            server.answer.go_on.set()
        server.shutdown()
        thread.join()


class Reply:
    """The broker's answer."""

    def __init__(self, response: http.client.HTTPResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = body

    @property
    def code(self) -> str:
        """The broker's own refusal; empty if the answer is the API's."""
        return self.headers.get("x-gateway", "")


class RunningBroker:
    """A broker as a process. Workers have the addresses 127.0.0.2, 127.0.0.3 and so on."""

    def __init__(self, folder: Path) -> None:
        self.grants = folder / "grants"
        self.state = folder / "state"
        for made in (self.grants, self.state):
            made.mkdir(exist_ok=True)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and wait until it listens."""
        (self.state / "ready").unlink(missing_ok=True)
        self.port = free_port()
        words = (str(self.port), str(self.grants), str(self.state), "127.0.0.1", "started")
        command = (sys.executable, "-I", "-c", bundle(PROGRAM), *words)
        self._process = subprocess.Popen(command)
        while not (self.state / "ready").exists():
            assert self._process.poll() is None
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def grant(self, url: str, *, worker: int = 1, token: str = TOKEN, **fields: Any) -> None:
        """Write the grant of a worker."""
        upstreams = {"openai": Upstream(url=url, key=KEY), "anthropic": Upstream(url=url, key=KEY)}
        upstreams["gemini"] = Upstream(url=url, key=KEY)
        grant = Grant(
            ledger=f"{worker}-1", token=hash_token(token), **{"upstreams": upstreams, **fields}
        )
        path = self.grants / f"{address_of(worker)}.json"
        scratch = path.with_suffix(".new")
        scratch.write_text(grant.model_dump_json())
        scratch.replace(path)

    def connection(self, worker: int = 1) -> http.client.HTTPConnection:
        """Return a connection from the address of a worker."""
        source = (address_of(worker), 0)
        return http.client.HTTPConnection("127.0.0.1", self.port, PATIENCE, source_address=source)

    def call(
        self,
        path: str = CHAT,
        body: Any = None,
        *,
        method: str = "POST",
        worker: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Make a call and return its answer."""
        asked = {"model": "gpt-4o", "messages": []} if body is None else body
        data = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        connection = self.connection(worker)
        given = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
        connection.request(method, path, body=data if method == "POST" else None, headers=given)
        response = connection.getresponse()
        reply = Reply(response, response.read())
        connection.close()
        return reply

    def ledger(self, worker: int = 1) -> list[dict[str, Any]]:
        """Return the lines of a worker's ledger."""
        lines = (self.state / f"{worker}-1.ndjson").read_text().splitlines()
        return [json.loads(line) for line in lines if line]


def address_of(worker: int) -> str:
    """Return the address of a worker."""
    return f"127.0.0.{worker + 1}"
