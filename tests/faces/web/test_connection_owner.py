"""Tests of the check of who connects: other users of the machine are refused."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.faces.web import server as web_server
from orchestrator.faces.web.server import OwnSocket, peer_uid

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"


@pytest.fixture
def server() -> Iterator[OwnSocket]:
    with OwnSocket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.settimeout(60)
        yield server


def row(client: socket.socket, *, uid: int, inode: int = 7) -> str:
    """Return the kernel's row of a connection, with another user."""
    here, there = client.getsockname()[1], client.getpeername()[1]
    return (
        f"   0: 0100007F:{here:04X} 0100007F:{there:04X} 01 0:0 00:0 0 {uid} 0 {inode} 1 0 20 4\n"
    )


def test_own_connections_are_accepted(server):
    with socket.create_connection(server.getsockname()) as client:
        connection, address = server.accept()
        with connection:
            assert peer_uid(connection) == os.getuid()
            assert address == client.getsockname()
    with socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        connection, _ = server.accept()
        with connection:
            assert peer_uid(connection) == os.getuid()


@pytest.mark.parametrize("rows", ["other", "closed by its process", "missing"])
def test_connections_of_others_are_refused(server, tmp_path, monkeypatch, rows):
    table = tmp_path / "tcp"
    monkeypatch.setattr(web_server, "_TABLES", (table,))
    with socket.create_connection(server.getsockname()) as client:
        text = {
            "other": row(client, uid=os.getuid() + 1),
            "closed by its process": row(client, uid=0, inode=0),
            "missing": "",
        }[rows]
        table.write_text(HEADING + text)
        with pytest.raises(ConnectionAbortedError):
            server.accept()
        assert client.recv(20).startswith(b"HTTP/1.1 403 ")
        table.write_text(HEADING + row(client, uid=0))
    with socket.create_connection(server.getsockname()) as client:
        table.write_text(HEADING + row(client, uid=0))
        server.accept()[0].close()


def test_without_kernel_tables_every_user_needs_only_the_cookie(server, tmp_path, monkeypatch):
    monkeypatch.setattr(web_server, "_TABLES", (tmp_path / "none",))
    with socket.create_connection(server.getsockname()):
        server.accept()[0].close()


def test_the_user_at_a_unix_socket_is_known(tmp_path):
    with OwnSocket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
            connection, _ = server.accept()
            with connection:
                assert peer_uid(connection) == os.getuid()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a program of another user")
def test_a_program_of_another_user_is_refused(server):
    ask = (
        "import encodings.idna, os, socket, sys\n"
        "os.setuid(65534)\n"
        "print(socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(20))\n"
    )
    port = str(server.getsockname()[1])
    with subprocess.Popen(
        [sys.executable, "-Ic", ask, port], stdout=subprocess.PIPE, text=True, cwd=Path("/")
    ) as program:
        with pytest.raises(ConnectionAbortedError):
            server.accept()
        assert program.stdout is not None
        assert "403" in program.stdout.read()
