"""Send hostile host names to a gateway: as SNI, as `Host`, as a request's target, and in queries.

Reads the names from `names.json`, as texts of Latin-1 characters. Prints `done` at the end.
"""

import contextlib
import json
import socket
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GATEWAY = Path("/etc/resolv.conf").read_text().split()[1]
NAMES = [name.encode("latin-1") for name in json.loads(Path("names.json").read_text())]
_PLACE = b"name.to.replace"


def hello(name: bytes) -> bytes:
    """Return a TLS ClientHello whose SNI is `name`, whatever its bytes are."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=_PLACE.decode())
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    data = outgoing.read()
    at, more = data.index(_PLACE), len(name) - len(_PLACE)
    changed = bytearray(data[:at] + name + data[at + len(_PLACE) :])
    extensions = 9 + 2 + 32
    extensions += 1 + changed[extensions]
    extensions += 2 + int.from_bytes(changed[extensions : extensions + 2], "big")
    extensions += 1 + changed[extensions]
    # Lengths of the name, its list, its extension, all extensions, the message and the record.
    for start, size in ((at - 2, 2), (at - 5, 2), (at - 7, 2), (extensions, 2), (6, 3), (3, 2)):
        length = int.from_bytes(changed[start : start + size], "big") + more
        changed[start : start + size] = length.to_bytes(size, "big")
    return bytes(changed)


def query(name: bytes) -> bytes:
    """Return a query with the labels of `name`, whose lengths are cut to one byte."""
    labels = b"".join(bytes([len(label) % 256]) + label for label in name.split(b"."))
    return struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


def sent(port: int, data: bytes) -> None:
    with (
        contextlib.suppress(OSError),
        socket.create_connection((GATEWAY, port), 10) as connection,
    ):
        connection.sendall(data)
        connection.recv(1)


def ask(name: bytes) -> None:
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(query(name), (GATEWAY, 53))


def attack(name: bytes) -> None:
    end = b"Connection: close\r\n\r\n"
    sent(443, hello(name))
    sent(80, b"GET / HTTP/1.1\r\nHost: " + name + b"\r\n" + end)
    sent(80, b"GET http://" + name + b"/ HTTP/1.1\r\nHost: " + name + b"\r\n" + end)
    sent(80, b"GET http://" + name + b"/ HTTP/1.1\r\nHost: a.wide.example\r\n" + end)
    sent(80, b"CONNECT " + name + b":80 HTTP/1.1\r\nHost: " + name + b"\r\n" + end)
    ask(name)


with ThreadPoolExecutor(64) as pool:
    list(pool.map(attack, NAMES))
print("done")  # noqa: T201
