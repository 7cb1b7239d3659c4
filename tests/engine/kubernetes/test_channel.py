"""The channel against a small WebSocket server, which does what a real one does rarely."""

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
import websocket

from orchestrator.base.errors import EngineError, EngineUnavailableError, NotRunningError
from orchestrator.engine.interface.protocol import TerminalSize
from orchestrator.engine.kubernetes.channel import PodProcess
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.pod_services import PodService
from orchestrator.engine.kubernetes.pod_step import PodContainer, PodStep
from orchestrator.sandbox.sidecars.sidecar import Check

pytestmark = pytest.mark.process

_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
SUCCESS = json.dumps({"status": "Success"}).encode()


def failure(code: str) -> bytes:
    causes = [{"reason": "ExitCode", "message": code}]
    return json.dumps(
        {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    ).encode()


def frame(kind: int, data: bytes, *, length: int | None = None) -> bytes:
    size = len(data) if length is None else length
    if size < 126:
        return bytes([0x80 | kind, size]) + data
    if size < 65536:
        return bytes([0x80 | kind, 126]) + struct.pack(">H", size) + data
    return bytes([0x80 | kind, 127]) + struct.pack(">Q", size) + data


def received(reader: IO[bytes]) -> tuple[int, bytes]:
    """Return the kind and the data of the next frame of a client."""
    first, second = reader.read(2)
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", reader.read(2))
    elif size == 127:
        (size,) = struct.unpack(">Q", reader.read(8))
    key = (reader.read(4) * (size // 4 + 1))[:size]
    data = int.from_bytes(reader.read(size), "big") ^ int.from_bytes(key, "big")
    return first & 0xF, data.to_bytes(size, "big")


@contextmanager
def api_server(
    tmp_path: Path,
    answer: Callable[[socket.socket], object],
    *,
    refusal: bytes = b"",
    connections: int = 1,
) -> Iterator[tuple[Cluster, list[str]]]:
    """Serve connections one after the other: the handshake, then what `answer` sends."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests: list[str] = []

    def serve_all() -> None:
        for _ in range(connections):
            serve()

    def serve() -> None:
        stream, _ = listener.accept()
        with stream:
            stream.settimeout(20)
            text = b""
            while b"\r\n\r\n" not in text:
                text += stream.recv(65536)
            requests.append(text.decode())
            if refusal:
                stream.sendall(refusal)
                return
            lines = (line.partition(": ") for line in requests[-1].split("\r\n"))
            headers = {name.lower(): value for name, _, value in lines}
            key = headers["sec-websocket-key"]
            protocol = headers["sec-websocket-protocol"].partition(",")[0].encode()
            known = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
            stream.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: "
                + protocol
                + b"\r\nSec-WebSocket-Accept: "
                + base64.b64encode(known)
                + b"\r\n\r\n"
            )
            with suppress(ConnectionError):  # the client may hang up
                answer(stream)

    thread = threading.Thread(target=serve_all)
    thread.start()
    settings = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{listener.getsockname()[1]}"}}
        ],
        "users": [{"name": "u", "user": {"token": "the-token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(settings))
    try:
        cluster = Cluster(kubeconfig=tmp_path / "kubeconfig", namespace="agents")
        yield cluster, requests
    finally:
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


def start(cluster: Cluster) -> PodProcess:
    return PodProcess(cluster, "pod-1", "porter", ["echo", "a b&c"])


def test_output_and_exit_code_of_a_command(tmp_path: Path) -> None:
    def answer(stream: socket.socket) -> None:
        for data in (
            b"\x01",
            b"\x02",
            b"\x01one",
            b"\x02two",
            b"\x01\x00\xff",
            b"\x03" + failure("7"),
        ):
            stream.sendall(frame(_BINARY, data))

    with api_server(tmp_path, answer) as (cluster, requests), closing(start(cluster)) as process:
        chunks = [(chunk.stream, chunk.data) for chunk in process.output()]
    assert chunks == [("stdout", b"one"), ("stderr", b"two"), ("stdout", b"\x00\xff")]
    assert process.exit_code == 7
    line, *headers = requests[0].split("\r\n")
    assert line.startswith(
        "GET /api/v1/namespaces/agents/pods/pod-1/exec?command=echo&command=a+b%26c&"
    )
    assert any(header.lower() == "authorization: bearer the-token" for header in headers)


def test_terminal_has_a_size_and_another_command_no_input(tmp_path: Path) -> None:
    frames: list[tuple[int, bytes]] = []

    def answer(stream: socket.socket) -> None:
        reader = stream.makefile("rb")
        frames.extend(received(reader) for _ in range(2))
        stream.sendall(frame(_BINARY, b"\x03" + failure("4")))

    size = TerminalSize(rows=24, columns=80)
    with (
        api_server(tmp_path, answer) as (cluster, requests),
        closing(PodProcess(cluster, "pod-1", "agent-1", ["sh"], size)) as process,
    ):
        process.resize(TerminalSize(rows=5, columns=6))
        assert list(process.output()) == []
        assert process.wait() == 4
    assert "stdin=true&stdout=true&stderr=false&tty=true" in requests[0]
    sizes = [json.loads(data[1:]) for _, data in frames if data[:1] == b"\x04"]
    assert sizes == [{"Width": 80, "Height": 24}, {"Width": 6, "Height": 5}]

    def end(stream: socket.socket) -> None:
        stream.sendall(frame(_CLOSE, struct.pack(">H", 1000)))

    with (
        api_server(tmp_path, end) as (cluster, requests),
        closing(PodProcess(cluster, "pod-1", "agent-1", ["ls"], False)) as process,
    ):
        with pytest.raises(EngineUnavailableError):
            list(process.output())
        with pytest.raises(EngineError):
            process.wait()
    assert "stdin=false&stdout=true&stderr=true&tty=false" in requests[0]


def test_input_goes_in_small_frames(tmp_path: Path) -> None:
    sent = bytes(range(256)) * 1000
    frames: list[tuple[int, bytes]] = []

    def answer(stream: socket.socket) -> None:
        reader = stream.makefile("rb")
        got = 0
        while got < len(sent):
            frames.append(received(reader))
            got += len(frames[-1][1]) - 1
        stream.sendall(frame(_BINARY, b"\x03" + SUCCESS))

    with api_server(tmp_path, answer) as (cluster, _), closing(start(cluster)) as process:
        process.write(sent)
        assert list(process.output()) == []
    assert process.exit_code == 0
    assert {kind for kind, _ in frames} == {_BINARY}
    assert {data[0] for _, data in frames} == {0}
    assert b"".join(data[1:] for _, data in frames) == sent
    assert max(len(data) for _, data in frames) <= 64 * 1024 + 1


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(b"", id="the connection ends"),
        pytest.param(frame(_CLOSE, struct.pack(">H", 1000)), id="closed without a status"),
        pytest.param(frame(_BINARY, b"\x01half", length=100), id="cut within a frame"),
        pytest.param(b"\xff\xff" + b"\0" * 20, id="reserved bits"),
    ],
)
def test_end_without_a_status_is_never_an_end_of_the_command(tmp_path: Path, last: bytes) -> None:
    def answer(stream: socket.socket) -> None:
        stream.sendall(frame(_BINARY, b"\x01all is well"))
        stream.sendall(last)

    with api_server(tmp_path, answer) as (cluster, _), closing(start(cluster)) as process:
        with pytest.raises(EngineUnavailableError):
            list(process.output())
        assert process.exit_code is None


@pytest.mark.parametrize("length", [2**24 + 1, 2**40])
def test_frame_is_refused_by_its_length(tmp_path: Path, length: int) -> None:
    def answer(stream: socket.socket) -> None:
        stream.sendall(frame(_BINARY, b"", length=length))

    server = api_server(tmp_path, answer)
    with server as (cluster, _), closing(start(cluster)) as process:
        with pytest.raises(EngineUnavailableError) as caught:
            list(process.output())
        assert process.exit_code is None
    assert isinstance(caught.value.__cause__, websocket.WebSocketProtocolException)


@pytest.mark.parametrize(
    "status",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        b'{"status": 1}',
        failure("many"),
        b'{"status": "Failure", "reason": "NonZeroExitCode", "details": {}}',
        b'{"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [1]}}',
        b'{"status": "Failure", "message": "error executing command"}',
    ],
)
def test_unreadable_status_is_an_error(tmp_path: Path, status: bytes) -> None:
    def answer(stream: socket.socket) -> None:
        stream.sendall(frame(_BINARY, b"\x03" + status) if status else b"")

    with api_server(tmp_path, answer) as (cluster, _), closing(start(cluster)) as process:
        with pytest.raises(EngineError):
            list(process.output())
        assert process.exit_code is None


def test_ping_is_answered(tmp_path: Path) -> None:
    answers: list[tuple[int, bytes]] = []

    def answer(stream: socket.socket) -> None:
        stream.sendall(frame(_PING, b"there?"))
        answers.append(received(stream.makefile("rb")))
        stream.sendall(frame(_BINARY, b"\x03" + SUCCESS))

    with api_server(tmp_path, answer) as (cluster, _), closing(start(cluster)) as process:
        assert list(process.output()) == []
    assert answers == [(_PONG, b"there?")]


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (403, 'pods "pod-1" is forbidden: cannot create resource "pods/exec"', EngineError),
        (404, 'pods "pod-1" not found', NotRunningError),
        (500, 'container not found ("porter")', NotRunningError),
        (502, "error dialing backend", EngineUnavailableError),
    ],
)
def test_refusal_has_the_words_of_the_server(
    tmp_path: Path, status: int, message: str, expected: type[Exception]
) -> None:
    body = json.dumps({"kind": "Status", "message": message}).encode()
    refusal = (
        f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    server = api_server(tmp_path, lambda _stream: None, refusal=refusal)
    with server as (cluster, _), pytest.raises(expected) as caught:
        start(cluster)
    assert message in str(caught.value)
    assert type(caught.value) is expected


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "orchestrator.engine.kubernetes.channel"
    for name, seconds in {"_TIMEOUT": 0.4, "_PING": 0.1, "_UNANSWERED": 0.6}.items():
        monkeypatch.setattr(f"{module}.{name}", seconds, raising=False)


def entered(cluster: Cluster, kind: str) -> PodProcess:
    pod = JobPod(cluster, "job")
    pod.metadata = {"name": "pod-1", "uid": "1"}
    service: PodContainer = PodService(pod, "service-db")
    container = service if kind == "service" else PodStep(pod, "agent", 1)
    return container.enter(
        ("sleep", "60"), TerminalSize(rows=5, columns=6) if kind == "tty" else None
    )


def pongs(stream: socket.socket, wanted: int) -> None:
    """Answer pings, as the cluster does although the command is silent."""
    reader = stream.makefile("rb")
    while wanted:
        kind, data = received(reader)
        if kind == _PING:
            stream.sendall(frame(_PONG, data))
            wanted -= 1


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("kind", ["step", "tty", "service"])
def test_command_of_a_user_may_be_silent(tmp_path: Path, kind: str) -> None:
    def answer(stream: socket.socket) -> None:
        pongs(stream, 12)
        stream.sendall(frame(_BINARY, b"\x01late") + frame(_BINARY, b"\x03" + SUCCESS))

    server = api_server(tmp_path, answer)
    with server as (cluster, _), closing(entered(cluster, kind)) as process:
        assert [chunk.data for chunk in process.output()] == [b"late"]
        assert process.wait() == 0


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("kind", ["step", "tty", "service"])
def test_dead_connection_is_noticed_though_the_command_may_be_silent(
    tmp_path: Path, kind: str
) -> None:
    def answer(stream: socket.socket) -> None:
        pongs(stream, 3)
        with suppress(OSError):
            while stream.recv(65536):
                pass

    server = api_server(tmp_path, answer)
    with server as (cluster, _), closing(entered(cluster, kind)) as process:
        with pytest.raises(EngineUnavailableError):
            list(process.output())
        assert process.exit_code is None


@pytest.mark.usefixtures("short_times")
def test_command_that_gives_signs_of_life_may_not_be_silent(tmp_path: Path) -> None:
    asked: list[tuple[int, bytes]] = []

    def answer(stream: socket.socket) -> None:
        with suppress(ValueError):  # the client hangs up
            asked.append(received(stream.makefile("rb")))

    server = api_server(tmp_path, answer)
    with server as (cluster, _), closing(start(cluster)) as process:
        with pytest.raises(EngineUnavailableError):
            list(process.output())
        assert process.exit_code is None
    assert asked == []


@pytest.mark.usefixtures("short_times")
def test_silent_health_command_is_not_started_again(tmp_path: Path) -> None:
    def answer(stream: socket.socket) -> None:
        pongs(stream, 12)
        stream.sendall(frame(_BINARY, b"\x03" + SUCCESS))

    class Entering:
        def enter(self, *_: object, **__: object) -> PodProcess:
            return entered(cluster, "service")

    with api_server(tmp_path, answer, connections=1) as (cluster, requests):
        check = Check(Entering(), "service-db", ("sh", "-c", "sleep 60"))  # type: ignore[arg-type]
        assert check.wait(10)
        check.stop()
    assert len(requests) == 1


def test_connection_ends_with_input_that_was_sent_in_part(tmp_path: Path) -> None:
    """A ping that followed would be input of the command."""
    got: list[bytes] = []
    blocked = threading.Event()

    def answer(stream: socket.socket) -> None:
        blocked.wait(10)
        while data := stream.recv(2**20):
            got.append(data)

    with api_server(tmp_path, answer) as (cluster, _), closing(start(cluster)) as process:
        process._socket.settimeout(0.2)
        with pytest.raises(EngineUnavailableError):
            process.write(bytes(2**26))
        blocked.set()
        with suppress(websocket.WebSocketException, OSError):
            process._socket.ping(b"x" * 125)
    ping = 2 + 4 + 125
    assert not b"".join(got)[-ping:].startswith(bytes([0x80 | _PING, 0x80 | 125]))
