"""Tests of connections to an engine with TLS, against a server that has nothing but a version."""

import gc
import hashlib
import json
import shutil
import ssl
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineUnavailableError, UnsupportedError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.connection import connect
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.process import run_in
from tests.support.own_daemon import make_certificates
from tests.support.recorded_engines import DOCKER, INFO

pytestmark = pytest.mark.process


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        known = INFO if self.path.endswith("/info") else DOCKER
        body = json.dumps({**known, "ApiVersion": "1.41", "Id": "e"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/exec"):
            self.do_GET()
            return
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        self.wfile.write(b"\1\0\0\0\0\0\0\5hello")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "tls"
    make_certificates(place, "127.0.0.1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(place))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    return place


@pytest.fixture
def server(certificates: Path) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    listener = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
    thread.start()
    yield listener.server_port
    listener.shutdown()
    thread.join()
    listener.server_close()


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTPS_PROXY"])
def test_no_variable_changes_whom_the_client_trusts(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    make_certificates(tmp_path / "other", "127.0.0.1")
    wrong = "http://127.0.0.1:9" if "PROXY" in variable else str(tmp_path / "other" / "ca.pem")
    monkeypatch.setenv(variable, wrong)
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server}")
    client = connect()
    assert client.version()["ApiVersion"] == "1.41"
    client.close()


def test_engine_over_the_network_is_not_taken_for_one_of_this_machine(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"tcp://127.0.0.1:{server}"
    monkeypatch.setenv("DOCKER_HOST", host)
    engine = DockerEngine()
    assert engine.check(images=(), runtime=None).address == host
    assert not engine.is_here
    engine.close()


def test_recorded_address_is_used_with_the_certificates_of_its_context(
    server: int, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"tcp://127.0.0.1:{server}"
    key = hashlib.sha256(b"there").hexdigest()
    described = tmp_path / "docker" / "contexts" / "meta" / key
    described.mkdir(parents=True)
    endpoints = {"docker": {"Host": url}}
    (described / "meta.json").write_text(json.dumps({"Name": "there", "Endpoints": endpoints}))
    shutil.copytree(certificates, tmp_path / "docker" / "contexts" / "tls" / key / "docker")
    for name in ("DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    with pytest.raises(UnsupportedError, match="has no TLS"):
        DockerEngine(url)
    monkeypatch.setenv("DOCKER_CONTEXT", "there")
    engine = DockerEngine(url)
    assert engine.check(images=(), runtime=None).address == url
    engine.close()


def test_server_of_another_authority_is_refused(
    server: int, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path / "other", "127.0.0.1")
    (certificates / "ca.pem").write_bytes((tmp_path / "other" / "ca.pem").read_bytes())
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server}")
    with pytest.raises(EngineUnavailableError), translated("connect"):
        connect()


def test_closed_engine_leaves_no_connection_open(
    server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server}")
    gc.collect()  # what earlier tests of this process left
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        engine = DockerEngine()
        engine.check(images=(), runtime=None)
        client = engine._client
        output = client.attach("c", stdout=True, stderr=True, stream=True, demux=True)
        assert list(output) == [(b"hello", None)]
        assert run_in(client, "c", ("true",)) == b"hello"
        engine.close()
        del engine, client, output
        gc.collect()
    messages = [str(warning.message) for warning in told]
    assert [message for message in messages if "SSLSocket" in message] == []
