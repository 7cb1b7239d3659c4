"""Ports that lead into a pod, against a small WebSocket server."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.engine.kubernetes import port_forward
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.port_forward import PortForward
from tests.engine.kubernetes.test_channel import api_server, frame, received
from tests.support.errors import raises
from tests.support.live import eventually
from tests.support.ports import free_port

pytestmark = pytest.mark.process
NUMBERS = b"".join(frame(2, bytes([channel, *struct.pack("<H", 3000)])) for channel in (0, 1))


def echo(stream: socket.socket) -> None:
    """Answer every frame, as a server in the pod would."""
    stream.sendall(NUMBERS)
    reader = stream.makefile("rb")
    try:
        while True:
            kind, data = received(reader)
            if kind == 8:
                return
            stream.sendall(frame(2, b"\0<" + data[1:] + b">"))
            if data.endswith(b"bye"):
                return
    except ValueError:
        return


@contextmanager
def forwarded(cluster: object) -> Iterator[tuple[PortForward, int]]:
    pod = JobPod(cluster, "job")  # type: ignore[arg-type]
    pod.metadata = {"name": "pod-1"}
    port = free_port()
    with closing(PortForward(pod)) as made:
        made.listen({3000: port})
        yield made, port


def said(stream: socket.socket, size: int) -> bytes:
    return stream.makefile("rb").read(size)


def test_connections_are_carried_one_by_one(tmp_path: Path) -> None:
    # The first connection finds out whether the cluster allows any.
    with api_server(tmp_path, echo, connections=3) as (cluster, requests):
        with forwarded(cluster) as (made, port):
            assert made.ports == {3000: port}
            made.listen({3000: port})
            for text in (b"one", b"bye"):
                with socket.create_connection(("127.0.0.1", port), 20) as here:
                    here.sendall(text)
                    assert said(here, len(text) + 2) == b"<" + text + b">"
                    if text == b"bye":
                        assert said(here, 1) == b""
        assert made.ports == {}
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), 20)
    assert len(requests) == 3
    assert all("/pods/pod-1/portforward?ports=3000 " in text for text in requests)


@pytest.mark.parametrize(
    "last", [b"", frame(2, b"\1connection refused"), frame(8, struct.pack(">H", 1000))],
    ids=["cut", "refused", "closed"],
)  # fmt: skip
def test_connection_ends_with_that_of_the_pod(tmp_path: Path, last: bytes) -> None:
    def answer(stream: socket.socket) -> None:
        stream.sendall(NUMBERS + frame(2, b"\0half") + last)
        if last:
            stream.recv(1)

    with (
        api_server(tmp_path, answer, connections=2) as (cluster, _),
        forwarded(cluster) as (_, port),
        socket.create_connection(("127.0.0.1", port), 20) as here,
    ):
        assert said(here, 100) == b"half"


def test_only_this_machine_reaches_the_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, int]] = []
    create = socket.create_server

    def note(address: tuple[str, int]) -> socket.socket:
        heard.append(address)
        return create(address)

    with api_server(tmp_path, echo) as (cluster, _):
        monkeypatch.setattr("socket.create_server", note)
        with forwarded(cluster) as (_, port):
            assert heard == [("127.0.0.1", port)]


def test_connections_at_the_same_time_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_forward, "_MOST_CONNECTIONS", 1)
    opened: list[int] = []
    first_open = PortForward._open

    def note(made: PortForward, port: int) -> object:
        # The stand-in serves one connection after the other: only the attempt counts.
        opened.append(port)
        return first_open(made, port)

    monkeypatch.setattr(PortForward, "_open", note)
    with (
        api_server(tmp_path, echo, connections=3) as (cluster, _),
        forwarded(cluster) as (_, port),
        socket.create_connection(("127.0.0.1", port), 20) as first,
    ):
        first.sendall(b"one")
        assert said(first, 5) == b"<one>"
        with socket.create_connection(("127.0.0.1", port), 20) as second:
            second.sendall(b"two")
            second.settimeout(1)
            with pytest.raises(TimeoutError):
                second.recv(1)
            assert len(opened) == 2
            first.close()
            second.settimeout(20)
            assert said(second, 5) == b"<two>"


def test_port_in_use_and_missing_right_are_errors(tmp_path: Path) -> None:
    body = b'{"message": "cannot create resource \\"pods/portforward\\""}'
    refusal = b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with api_server(tmp_path, echo, refusal=refusal) as (cluster, _):
        pod = JobPod(cluster, "job")
        pod.metadata = {"name": "pod-1"}
        made = PortForward(pod)
        with socket.create_server(("127.0.0.1", 0)) as taken, raises("port.taken"):
            made.listen({3000: taken.getsockname()[1]})
        port = free_port()
        with pytest.raises(EngineError, match="pods/portforward"):
            made.listen({3000: port})
        assert made.ports == {}
        socket.create_server(("127.0.0.1", port)).close()
    eventually(
        lambda: not any(each.name.startswith("port-") for each in threading.enumerate()),
        "the threads' end",
    )
