"""Tests of ports of this machine that lead into sandboxes."""

import http.client
import socket
import threading

import pytest

from orchestrator.base.errors import NotRunningError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import MANAGED, ROLE, SANDBOX
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.models import SandboxLimits
from tests.support.bridge import bridge_gateway
from tests.support.errors import raises
from tests.support.live import eventually

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("homes")]
SMALL = SandboxLimits(memory="64m", cpus=1, pids=32, grace=0.2)
ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        got = b""
        while data := self.request.recv(65536):
            got += data
        self.request.sendall(got[::-1])
socketserver.ThreadingTCPServer(("127.0.0.1", 9000), Echo).serve_forever()
"""


def asked(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def echoed(address: str, said: bytes) -> bytes:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as one:
        one.sendall(said)
        one.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: one.recv(65536), b""))


def test_ports_of_sandbox_without_a_network_are_reached_from_this_machine_alone(
    docker_engine: DockerEngine,
) -> None:
    with Sandbox.create(limits=SMALL, engine=docker_engine) as box:
        # The service may begin to listen later.
        address = box.expose(8000)
        assert address == box.expose(8000)
        with pytest.raises((http.client.HTTPException, OSError)):
            asked(address, "/")
        box.files.write("a.txt", b"served")
        box.start(["python3", "-m", "http.server", "8000"])
        box.start(["python3", "-c", ECHO])

        def is_served() -> bool:
            try:
                return asked(address, "/a.txt") == (200, b"served")
            except (http.client.HTTPException, OSError):
                return False

        eventually(is_served, "the page is served")
        other = box.expose(9000)
        # Much at once, in both directions; the client ends its half first.
        said = bytes(range(256)) * 4096
        eventually(lambda: echoed(other, b"ab") == b"ba", "the echo is served")
        found: list[bytes] = []
        threads = [
            threading.Thread(target=lambda: found.append(echoed(other, said))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [said[::-1]] * 8
        port = int(address.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((bridge_gateway(), port), timeout=5)
        # The sandbox has no network all the same, and sees nothing of what carries.
        devices = box.run(["cat", "/proc/net/dev"]).stdout.decode().splitlines()[2:]
        assert [line.split(":")[0].strip() for line in devices] == ["lo"]
        assert not box.run(["ls", "/run/ports"]).ok
        with raises("port.taken"):
            box.expose(9001, at=port)
        with raises("sandbox.port"):
            box.expose(0)
        # Another process that knows the sandbox exposes its ports, too.
        again = Sandbox.connect(box.id, engine=docker_engine)
        assert asked(again.expose(8000), "/a.txt") == (200, b"served")
        labels = {MANAGED: "true", SANDBOX: box.id}
        assert len(docker_engine.leftovers({**labels, ROLE: "ports"})) == 2
    assert docker_engine.leftovers(labels) == []
    with pytest.raises(ConnectionRefusedError):
        echoed(address, b"")
    with pytest.raises(NotRunningError):
        box.expose(8000)
