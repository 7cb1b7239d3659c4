"""Serve the web view at a port of 127.0.0.1, or at a Unix socket, to one user of the machine."""

import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from orchestrator.base.errors import ConfigError, PortTakenError
from orchestrator.base.text.split_lines import split_lines

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_MAPPED = "0000000000000000FFFF0000"
"""Beginning of an IPv4-mapped address in the kernel's table of IPv6 connections."""
_ORPHAN = "0"
"""Inode of a connection that its process has closed; the kernel records no user for it."""
_ROOT = 0


class OwnSocket(socket.socket):
    """A listening socket that accepts only connections of the process's own user and of root."""

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: Another user opened the connection; it was refused.
        """
        connection, address = super().accept()
        if _is_own(connection):
            return connection, address
        with connection, suppress(OSError):
            connection.settimeout(0)
            connection.send(_REFUSAL)
        raise ConnectionAbortedError("the connection belongs to another user")


_SAID = b"refused: this server answers the user who started it\n"
_REFUSAL = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_SAID), _SAID)
)


def _is_own(connection: socket.socket) -> bool:
    if connection.family == socket.AF_INET and not _TABLES[0].is_file():
        # Only Linux has the tables. Elsewhere the session alone decides.
        return True
    try:
        # protection: other-users-of-machine-are-refused
        return peer_uid(connection) in (os.getuid(), _ROOT)
    except OSError:
        # The connection was closed meanwhile.
        return False


def peer_uid(connection: socket.socket) -> int | None:
    """Return the id of the user at the other end of a local connection; None if unknown."""
    if connection.family == socket.AF_UNIX:
        size = struct.calcsize("3i")
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return int(struct.unpack("3i", found)[1])
    here, there = _in_table(connection.getsockname()), _in_table(connection.getpeername())
    pairs = (there, here), (_MAPPED + there, _MAPPED + here)
    for table in _TABLES:
        lines = split_lines(table.read_text())[1:] if table.is_file() else []
        for row in map(str.split, lines):
            if len(row) > 9 and (row[1], row[2]) in pairs:
                # protection: connections-that-their-program-closed-are-refused
                return None if row[9] == _ORPHAN else int(row[7])
    return None


def _in_table(address: tuple[str, int]) -> str:
    """Return an address as the kernel's tables show it."""
    number = int.from_bytes(socket.inet_aton(address[0]), byteorder=sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"


# protection: server-listens-on-loopback-only
_LOOPBACK = "127.0.0.1"
_LONGEST_SOCKET = 107
_GRACE = 1
"""Seconds to complete the requests that are being answered when the server is stopped."""
_MOST_REQUESTS = 64
"""Maximum number of requests that are answered at one time."""


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Listen at a port of 127.0.0.1 for the caller's own programs; port 0 chooses a free port.

    Raises:
        PortTakenError: The port is in use, or reserved for root.
    """
    with OwnSocket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((_LOOPBACK, port))
            # The link is printed before the server runs: connections wait for it from now on.
            server.listen()
        except OSError as error:
            raise PortTakenError(
                f"port {port} cannot be used: {error.strerror}",
                key="port.taken",
                hint="choose another port with `--port`, or leave the option out",
            ) from error
        yield server


@contextmanager
def listening_at(path: Path) -> Iterator[socket.socket]:
    """Listen at a Unix socket that only its owner can open, and remove the socket at the end.

    Raises:
        ConfigError: The socket cannot be created.
    """
    if len(os.fsencode(path)) > _LONGEST_SOCKET:
        raise ConfigError(
            f"the path of the socket is longer than {_LONGEST_SOCKET} bytes: {path}",
            key="socket.path",
        )
    with OwnSocket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        # protection: socket-is-for-its-owner-only
        before = os.umask(0o177)
        try:
            _remove_stale(path)
            server.bind(str(path))
            server.listen()
        except OSError as error:
            raise ConfigError(
                f"the socket {path} cannot be created: {error.strerror}",
                key="socket.failed",
                hint="choose another path: a file is there, or another `orchestrator ui` serves",
            ) from error
        finally:
            os.umask(before)
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Remove a socket of the caller at which no process listens: its process was killed."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode) or info.st_uid != os.geteuid():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)


def serve(application: Callable[[int | None], ASGIApp], server: socket.socket) -> None:
    """Answer requests until the process is interrupted.

    Args:
        application: Returns the application for a port; for a Unix socket if the port is None.
        server: The bound socket.
    """
    port = server.getsockname()[1] if server.family == socket.AF_INET else None
    config = uvicorn.Config(
        application(port),
        # Other parsers accept a whole URL as a request's target, and then ignore its host.
        http="h11",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_REQUESTS,
        timeout_graceful_shutdown=_GRACE,
    )
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[server])
