"""Find the user of this machine who opened a connection, according to the kernel."""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.text.split_lines import split_lines

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
    for row in _rows():
        if len(row) > 9 and (row[1], row[2]) in ((there, here), (_MAPPED + there, _MAPPED + here)):
            # protection: connections-that-their-program-closed-are-refused
            return None if row[9] == _ORPHAN else int(row[7])
    return None


def _in_table(address: tuple[str, int]) -> str:
    """Return an address as the kernel's tables show it."""
    number = int.from_bytes(socket.inet_aton(address[0]), byteorder=sys.byteorder)
    return f"{number:08X}:{address[1]:04X}"


def _rows() -> Iterator[list[str]]:
    for table in _TABLES:
        if table.is_file():
            yield from (line.split() for line in split_lines(table.read_text())[1:])
