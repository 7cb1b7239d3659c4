"""Requests and WebSockets to a cluster use the same proxies."""

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.engine.kubernetes.cluster import Cluster
from tests.engine.kubernetes.test_channel import SUCCESS, api_server, frame, start
from tests.support.errors import raises

pytestmark = pytest.mark.process
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass
class Proxy:
    """Opens tunnels if `tunnels`, and refuses everything else."""

    address: str
    tunnels: bool = False
    asked: list[str] = field(default_factory=list)
    """The heads of requests."""

    @property
    def methods(self) -> list[str]:
        return [head.partition(" ")[0] for head in self.asked]

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                stream, _ = listener.accept()
                threading.Thread(target=self._answer, args=(stream,), daemon=True).start()

    def _answer(self, stream: socket.socket) -> None:
        with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += stream.recv(65536)
            self.asked.append(head.decode())
            if not self.tunnels:
                stream.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
                return
            host, _, port = head.split()[1].decode().partition(":")
            with socket.create_connection((host, int(port))) as target:
                stream.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                there = threading.Thread(target=_copy, args=(stream, target), daemon=True)
                there.start()
                _copy(target, stream)
                there.join(20)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Proxy(f"127.0.0.1:{listener.getsockname()[1]}")
        threading.Thread(target=made.serve, args=(listener,), daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)


def change(file: Path, **cluster: str) -> Cluster:
    settings = json.loads(file.read_text())
    settings["clusters"][0]["cluster"].update(cluster)
    file.write_text(json.dumps(settings))
    return Cluster(kubeconfig=file, namespace="agents")


@pytest.mark.parametrize("user", ["", "ann:s%40y@"])
def test_command_runs_through_the_proxy_of_the_configuration(
    tmp_path: Path, proxy: Proxy, user: str
) -> None:
    def answer(stream: socket.socket) -> None:
        stream.sendall(frame(2, b"\x01hello") + frame(2, b"\x03" + SUCCESS))

    proxy.tunnels = True
    with api_server(tmp_path, answer):
        url = f"http://{user}{proxy.address}"
        cluster = change(tmp_path / "kubeconfig", **{"proxy-url": url})
        with closing(start(cluster)) as process:
            assert [chunk.data for chunk in process.output()] == [b"hello"]
            assert process.wait() == 0
    assert proxy.methods == ["CONNECT"]
    proxy.tunnels = False
    with pytest.raises(EngineUnavailableError):
        cluster.request("GET", "/version")
    known = f"basic {base64.b64encode(b'ann:s@y').decode()}".lower()
    for head in proxy.asked:
        lines = dict(line.lower().partition(": ")[::2] for line in head.split("\r\n"))
        assert lines.get("proxy-authorization") == (known if user else None)


HTTP, HTTPS = "http://localhost:1", "https://localhost:1"


@pytest.mark.parametrize(
    ("server", "url", "variables", "is_used"),
    [
        (HTTP, "", {}, False),
        (HTTP, "http://PROXY", {}, True),
        (HTTPS, "http://PROXY", {}, True),
        (HTTP, "http://PROXY", {"NO_PROXY": "localhost"}, False),
        (HTTP, "http://PROXY", {"NO_PROXY": "localhost:1"}, False),
        (HTTP, "http://PROXY", {"NO_PROXY": "ocalhost"}, True),
        (HTTP, "http://PROXY", {"NO_PROXY": ".calhost"}, True),
        (HTTP, "http://PROXY", {"NO_PROXY": "*"}, False),
        (HTTP, "http://PROXY", {"http_proxy": "http://127.0.0.1:1"}, True),
        (HTTP, "", {"HTTP_PROXY": "http://PROXY"}, True),
        (HTTP, "", {"http_proxy": "PROXY"}, True),
        (HTTP, "", {"ALL_PROXY": "http://PROXY"}, True),
        (HTTP, "", {"HTTPS_PROXY": "http://PROXY"}, False),
        (HTTPS, "", {"HTTPS_PROXY": "http://PROXY"}, True),
        (HTTPS, "", {"HTTPS_PROXY": "http://PROXY", "no_proxy": "localhost"}, False),
        (HTTPS, "", {"HTTPS_PROXY": "http://PROXY", "no_proxy": "localhost:1"}, False),
    ],
)
def test_requests_and_commands_agree_on_the_proxy(
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    proxy: Proxy,
    server: str,
    url: str,
    variables: dict[str, str],
    *,
    is_used: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("PROXY", proxy.address))
    proxied = {"proxy-url": url.replace("PROXY", proxy.address)} if url else {}
    cluster = change(kubeconfig, server=server, **proxied)
    with pytest.raises(EngineUnavailableError):
        cluster.request("GET", "/version")
    with pytest.raises(EngineUnavailableError):
        start(cluster)
    first = "GET" if server == HTTP else "CONNECT"
    assert proxy.methods == ([first, "CONNECT"] if is_used else [])


@pytest.mark.usefixtures("proxy")
@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("https://ann:sesame@127.0.0.1:1", "NO_PROXY"),
        ("ftp://127.0.0.1:1", "NO_PROXY"),
        ("socks5://127.0.0.1:1", "`pip install PySocks python-socks`"),
        ("http://", "NO_PROXY"),
        ("http://127.0.0.1:many", "NO_PROXY"),
    ],
)
def test_proxy_that_commands_cannot_use_is_refused(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, url: str, hint: str
) -> None:
    monkeypatch.setattr("orchestrator.engine.kubernetes.cluster.find_spec", lambda _: None)
    with raises("cluster.proxy") as caught:
        change(kubeconfig, **{"proxy-url": url})
    assert hint in str(caught.value.hint)
    assert "sesame" not in str(caught.value)
