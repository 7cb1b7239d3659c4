"""Test of a machine whose only name server is on loopback; `other_engines.py` runs it.

The engine and the test share a network namespace, and an `/etc/resolv.conf` that names 127.0.0.1.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.cli import orchestrator, printed
from tests.support.outside import NAME_SERVER, outside

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell", "--json", "--workers", "1", "--network")
FILES = "files.example=10.99.112.0/24"


@contextmanager
def forwarder() -> Iterator[None]:
    """Forward queries to 127.0.0.1 to the name server of the outside during the block."""
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        server.settimeout(0.5)
        ended = threading.Event()
        thread = threading.Thread(target=_forward, args=(server, ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _forward(server: socket.socket, ended: threading.Event) -> None:
    while not ended.is_set():
        with suppress(TimeoutError):
            query, asker = server.recvfrom(4096)
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.settimeout(5)
                client.sendto(query, (NAME_SERVER, 53))
                server.sendto(client.recv(4096), asker)


def test_hosts_are_found_with_a_name_server_on_loopback(repo: Path, tmp_path: Path) -> None:
    assert Path("/etc/resolv.conf").read_text() == "nameserver 127.0.0.1\n"
    fetch = "curl -kfsS -m 60 https://files.example/ || echo closed; getent hosts other.example"
    look = "getent hosts files.example"
    with outside(tmp_path) as world, forwarder():
        listed = orchestrator(*SHELL, "allowlist", "--allow", FILES, f"{fetch}; true", cwd=repo)
        assert listed.returncode == 0, listed.stderr
        assert printed(listed.results[1]).splitlines() == ["served 10.99.112.10:443 /"]
        assert world.names() == {"files.example"}
        opened = orchestrator(*SHELL, "open", look, cwd=repo)
        assert opened.returncode == 0, opened.stderr
        (result,) = opened.results.values()
        assert printed(result).split() == ["10.99.112.10", "files.example"]
