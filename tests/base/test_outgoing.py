"""Every request that the orchestrator itself sends goes through one function with these rules."""

import ast
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import orchestrator
from orchestrator.base.outgoing import RequestFailedError, post
from tests.support.live import PATIENCE

BODY, SIGNED = b'{"text": "hello"}', {"Content-Type": "application/json", "x-signature": "v1,abc"}
CLIENTS = re.compile(
    r"^(urllib\.request|http\.client|urllib3|requests|aiohttp|httpx|ftplib|smtplib)\b"
)
ALLOWED = {
    "base/outgoing.py": "the function",
    "network/broker/passing.py": "calls of workers: no redirect with a key; tests/network/broker",
    "network/broker/server.py": "likewise",
    "engine/docker/buildkit.py": "the engine, by the session of its SDK",
    "engine/docker/connection.py": "the engine, by its SDK",
    "engine/docker/errors.py": "likewise",
    "engine/kubernetes/cluster.py": "the cluster, by its client",
}
"""Modules that may use a client of HTTP, and what they reach."""


class Server(ThreadingHTTPServer):
    """A server that answers as a test says."""

    daemon_threads = True

    def __init__(self, answer: Callable[["Handler"], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.seen: list[tuple[str, str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.seen.append((self.command, self.path, self.headers["x-signature"], body))
        with suppress(OSError):
            self.server.answer(self)

    do_GET = do_POST

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def serving(answer: Callable[[Handler], None]) -> Iterator[Server]:
    with Server(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def send(address: str, timeout: float = PATIENCE) -> bytes:
    return post(address, BODY, SIGNED, timeout=timeout)


def test_message_arrives_and_the_answer_is_bounded() -> None:
    with serving(lambda handler: handler.reply(200, b"x" * 10**6)) as server:
        assert len(send(f"{server.url}/a")) == 64 * 1024
    assert server.seen == [("POST", "/a", "v1,abc", BODY)]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "to", ["/b", "same", "other", "localhost", "//evil", "ftp://x/", "", "http://[/"]
)
def test_redirects(status: int, to: str) -> None:
    with serving(lambda handler: handler.reply(204)) as other:
        targets: dict[str, str] = {}

        def answer(handler: Handler) -> None:
            if handler.path == "/a":
                handler.reply(status, Location=targets.get(to, to))
            else:
                handler.reply(204)

        with serving(answer) as server:
            targets |= {
                "same": f"{server.url}/b",
                "other": f"{other.url}/b",
                "localhost": f"http://localhost:{server.server_port}/b",
            }
            arrived = [("POST", "/a", "v1,abc", BODY)]
            if status in (307, 308) and to in ("/b", "same"):
                assert send(f"{server.url}/a") == b""
                arrived.append(("POST", "/b", "v1,abc", BODY))
            else:
                with pytest.raises(RequestFailedError) as caught:
                    send(f"{server.url}/a")
                assert not caught.value.is_temporary
                assert str(status) in str(caught.value) or to == ""
            assert server.seen[: len(arrived)] == arrived
            assert all(method == "POST" for method, *_ in server.seen)
        assert other.seen == []


def test_endless_redirect_ends() -> None:
    with serving(lambda handler: handler.reply(308, Location="/a")) as server:
        with pytest.raises(RequestFailedError, match="too often"):
            send(f"{server.url}/a")
        assert len(server.seen) == 4


@pytest.mark.parametrize(
    ("status", "after", "is_temporary"),
    [(400, None, False), (404, None, False), (429, "7", True), (503, "date", True),
     (503, "soon", True), (500, "-5", True), (429, "9" * 400, True), (503, "\u00b2", True)],
)  # fmt: skip
def test_statuses(status: int, after: str | None, is_temporary: bool) -> None:
    text = formatdate(time.time() + 100, usegmt=True) if after == "date" else after
    headers = {} if text is None else {"Retry_After": text}
    with (
        serving(lambda handler: handler.reply(status, b"t0psecret", **headers)) as server,
        pytest.raises(RequestFailedError, match=f"the status {status}$") as caught,
    ):
        send(server.url)
    assert caught.value.is_temporary == is_temporary
    found = caught.value.retry_after
    if after == "7":
        assert found == 7
    elif after == "date":
        assert found is not None
        assert 90 < found <= 100
    elif after == "9" * 400:
        assert found is not None
        assert found > 10**8
    else:
        assert found is None


def test_server_that_drips_is_left_in_time() -> None:
    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    with serving(drip) as server:
        began = time.monotonic()
        with pytest.raises(RequestFailedError, match=r"no answer within 0\.3 s"):
            send(server.url, timeout=0.3)
        assert time.monotonic() - began < 3


def test_errors_are_one_line_without_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as strange:
        odd = threading.Thread(target=_answer_once, args=(strange, b"t0psecret\r\n\r\n"))
        odd.start()
        for address, told in (
            (f"http://127.0.0.1:{port}/t0psecret", "refused"),
            (f"http://127.0.0.1:{strange.getsockname()[1]}/", "BadStatusLine"),
            ("http://127.0.0.1:t0psecret/", "address is not valid"),
            ("http://127.0.0.1/a b\nt0psecret", "address is not valid"),
            ("file:///etc/t0psecret", "address is not valid"),
            ("http:///t0psecret", ""),
        ):
            with pytest.raises(RequestFailedError) as caught:
                send(address)
            assert told in str(caught.value), address
            assert "t0psecret" not in str(caught.value)
            assert "\n" not in str(caught.value)
        odd.join()


def _answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(answer)


def test_certificate_that_is_not_accepted_is_told(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=here", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake() -> None:
            connection, _ = listener.accept()
            with suppress(OSError), context.wrap_socket(connection, server_side=True):
                pass

        thread = threading.Thread(target=shake)
        thread.start()
        with pytest.raises(RequestFailedError, match="certificate is not accepted: self") as caught:
            send(f"https://127.0.0.1:{listener.getsockname()[1]}/")
        assert not caught.value.is_temporary
        thread.join()


def test_proxies_of_the_user_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda handler: handler.reply(200, b"by proxy")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert send("http://collector.example/a") == b"by proxy"
        assert proxy.seen[0][1] == "http://collector.example/a"
        with serving(lambda handler: handler.reply(200, b"directly")) as server:
            assert send(server.url) == b"directly"


def test_no_other_module_sends_requests() -> None:
    package = Path(orchestrator.__file__).parent
    found = {
        str(path.relative_to(package)): name
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _imported(node)
        if CLIENTS.match(name)
    }
    assert found.keys() == ALLOWED.keys(), found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []
