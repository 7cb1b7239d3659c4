"""Try to get past a gateway from inside a worker; print one line for each attempt.

`NAME: reached` if the host that is not on the list has answered, else `NAME: held`. Names that
begin with `control` ask the host that is on the list, in the same way.
"""

import contextlib
import fcntl
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

LISTED, CLOSED = "files.example", "other.example"
ADDRESS = sys.argv[1]
"""Address of the host that is not on the allow-list."""
MACHINE = sys.argv[2]
GATEWAY = Path("/etc/resolv.conf").read_text().split()[1]
ATTEMPTS: dict[str, Callable[[], object]] = {}
TIMEOUT = 3
GET = "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"


def attempt(name: str, run: Callable[[], object]) -> None:
    ATTEMPTS[name] = run


def received(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while piece := connection.recv(65536):
            found += piece
    return found


def send(data: str | bytes, *, host: str = GATEWAY, port: int = 80) -> bytes:
    raw = data.encode("latin-1") if isinstance(data, str) else data
    with socket.create_connection((host, port), TIMEOUT) as connection:
        connection.sendall(raw)
        return received(connection)


def tls(sni: str | None, *, host: str = GATEWAY, name: str = CLOSED, slow: bool = False) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname=sni)
    with socket.create_connection((host, 443), TIMEOUT) as connection:
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                _pass_on(connection, outgoing.read(), slow=slow)
                data = connection.recv(65536)
                if not data:
                    return b""
                incoming.write(data)
        session.write(GET.format(name).encode())
        connection.sendall(outgoing.read())
        found = b""
        while b"served" not in found and (data := connection.recv(65536)):
            incoming.write(data)
            with contextlib.suppress(ssl.SSLWantReadError):
                while piece := session.read(65536):
                    found += piece
        return found


def _pass_on(connection: socket.socket, data: bytes, *, slow: bool) -> None:
    if not slow:
        connection.sendall(data)
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(data), 40):
        connection.sendall(data[at : at + 40])
        time.sleep(0.01)


def ask(name: str, *, server: str, kind: int = 1, tcp: bool = False) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    question = (
        struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + struct.pack(">BHH", 0, kind, 1)
    )
    if tcp:
        framed = struct.pack(">H", len(question)) + question
        return send(framed, host=server, port=53)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(TIMEOUT)
        client.sendto(question, (server, 53))
        return client.recv(4096)


def has_answer(reply: bytes) -> bytes:
    """Return `served` if a name server gave an answer."""
    return b"served " + ADDRESS.encode() if struct.unpack(">H", reply[6:8])[0] else b""


def keep_alive(second: str) -> bytes:
    with socket.create_connection((GATEWAY, 80), TIMEOUT) as connection:
        connection.sendall(GET.format(LISTED).replace("close", "keep-alive").encode())
        connection.recv(65536)
        connection.sendall(GET.format(second).encode())
        return received(connection)


def open_ports() -> bytes:
    """Return `served` if the gateway has a port that it should not have."""
    found = []
    for port in (*range(1, 1025), 3000, 3128, 5353, 8080, 8443, 9090):
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex((GATEWAY, port)) == 0:
                found.append(port)
    return b"" if found == [53, 80, 443] else f"served {ADDRESS} {found}".encode()


def raw_socket(family: int, protocol: int) -> bytes:
    socket.socket(family, socket.SOCK_RAW, protocol).close()
    return b"served " + ADDRESS.encode()


def add_route() -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x890B, bytes(120))  # SIOCADDRT
    return b"served " + ADDRESS.encode()


def name_in_the_way(name: str) -> bytes:
    socket.getaddrinfo(name, 443)
    return b"served " + ADDRESS.encode()


def smuggled(headers: str, body: str) -> str:
    return f"POST / HTTP/1.1\r\nHost: {LISTED}\r\n{headers}\r\n\r\n{body}{GET.format(CLOSED)}"


attempt("control tls", lambda: tls(LISTED, name=LISTED))
attempt("control slow tls", lambda: tls(LISTED, name=LISTED, slow=True))
attempt("control http", lambda: send(GET.format(LISTED)))
attempt("control http with port", lambda: send(GET.format(f"{LISTED}:80")))
attempt("control http in capitals", lambda: send(GET.format(LISTED.upper())))
attempt("control second request", lambda: keep_alive(LISTED))

attempt("listed by another name: sni", lambda: tls(CLOSED))
attempt("listed by another name: host", lambda: send(GET.format(CLOSED)))
attempt("second request with another host", lambda: keep_alive(CLOSED))
attempt("name is resolved", lambda: name_in_the_way(CLOSED))

PARTS = [int(part) for part in ADDRESS.split(".")]
NUMBER = int.from_bytes(bytes(PARTS), "big")
for number, literal in enumerate(
    (
        ADDRESS,
        ".".join(f"{part:#04x}" for part in PARTS),
        str(NUMBER),
        ".".join(f"0{part:o}" for part in PARTS),
        f"{PARTS[0]}.{PARTS[1]}.{NUMBER & 0xFFFF}",
    )
):
    attempt(f"address {number}", lambda at=literal: send(GET.format(CLOSED), host=at))
    attempt(f"address {number} with tls", lambda at=literal: tls(CLOSED, host=at))
attempt("address by ipv6", lambda: send(GET.format(CLOSED), host=f"::ffff:{ADDRESS}"))
attempt("ipv6 of the link", lambda: send(GET.format(CLOSED), host="ff02::1%eth0"))
attempt("other port of the host", lambda: send(GET.format(CLOSED), host=ADDRESS, port=22))
attempt("metadata", lambda: send(GET.format("169.254.169.254"), host="169.254.169.254"))
attempt("machine", lambda: send(GET.format(CLOSED), host=MACHINE))
attempt("machine on the default bridge", lambda: send(GET.format(CLOSED), host="172.17.0.1"))
attempt(
    "machine on this network",
    lambda: send(GET.format(CLOSED), host=f"{GATEWAY.rpartition('.')[0]}."
                 f"{int(GATEWAY.rpartition('.')[2]) - 2}"),
)  # fmt: skip
attempt("other ports of the gateway", open_ports)

for wrong in (
    None, f"{CLOSED}.", f"{LISTED}.{CLOSED}", f"x{LISTED}", f"secret.{CLOSED}", "example",
    f"secret.{LISTED}", "wide.example", "awide.example",
):  # fmt: skip
    attempt(f"sni {wrong}", lambda sni=wrong: tls(sni))
attempt("slow tls to another host", lambda: tls(CLOSED, slow=True))
attempt("ssh on 443", lambda: send("SSH-2.0-x\r\n", port=443))
attempt("http on 443", lambda: send(GET.format(CLOSED), port=443))
attempt("tls with an address as sni", lambda: tls(f"{ADDRESS}.example"))

for number, text in enumerate(
    (
        "GET / HTTP/1.0\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {LISTED}\r\nHost: {CLOSED}\r\nConnection: close\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {CLOSED}\r\nHost: {LISTED}\r\nConnection: close\r\n\r\n",
        f"GET http://{CLOSED}/ HTTP/1.1\r\nHost: {LISTED}\r\nConnection: close\r\n\r\n",
        f"GET http://{CLOSED}/ HTTP/1.1\r\nHost: {CLOSED}\r\nConnection: close\r\n\r\n",
        f"CONNECT {CLOSED}:80 HTTP/1.1\r\nHost: {CLOSED}:80\r\n\r\n{GET.format(CLOSED)}",
        f"CONNECT {LISTED}:80 HTTP/1.1\r\nHost: {LISTED}:80\r\n\r\n{GET.format(CLOSED)}",
        f"CONNECT {ADDRESS}:80 HTTP/1.1\r\nHost: {LISTED}\r\n\r\n{GET.format(CLOSED)}",
        GET.format(f"{LISTED}@{CLOSED}"),
        GET.format(f"{CLOSED}:80@{LISTED}"),
        GET.format(f"{LISTED}, {CLOSED}"),
        GET.format(f"{LISTED}\t{CLOSED}"),
        GET.format(ADDRESS),
        f"GET / HTTP/1.1\r\nHost : {CLOSED}\r\nHost: {LISTED}\r\nConnection: close\r\n\r\n",
        f"GET / HTTP/1.1\nHost: {CLOSED}\nConnection: close\n\n",
        f"GET /\\\\{CLOSED} HTTP/1.1\r\nHost: {CLOSED}\r\nConnection: close\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {CLOSED}\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\0" * 9,
        "PROXY TCP4 127.0.0.1 " + ADDRESS + " 1 80\r\n" + GET.format(CLOSED),
        smuggled("Content-Length: 6\r\nTransfer-Encoding: chunked", "0\r\n\r\nG"),
        smuggled("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "0\r\n\r\n"),
        smuggled("Content-Length: 0\r\nContent-Length: 1", "G"),
        smuggled("Content-Length: 0", ""),
    )
):  # fmt: skip
    attempt(f"http {number}", lambda data=text: send(data))

attempt("dns: another host", lambda: has_answer(ask(CLOSED, server=GATEWAY)))
attempt("dns: data in a name", lambda: has_answer(ask(f"secret.{CLOSED}", server=GATEWAY)))
attempt("dns: text record", lambda: has_answer(ask(f"txt.{CLOSED}", server=GATEWAY, kind=16)))
attempt("dns: over tcp", lambda: has_answer(ask(CLOSED, server=GATEWAY, tcp=True)[2:]))
attempt("dns: below a listed host", lambda: has_answer(ask(f"x.{LISTED}", server=GATEWAY)))
attempt("dns: of the outside", lambda: has_answer(ask(CLOSED, server="10.99.112.53")))
attempt("dns: of the engine", lambda: has_answer(ask(CLOSED, server="127.0.0.11")))
attempt("udp to another host", lambda: has_answer(ask(CLOSED, server=ADDRESS)))
attempt("raw packets", lambda: raw_socket(socket.AF_INET, socket.IPPROTO_TCP))
attempt("raw frames", lambda: raw_socket(getattr(socket, "AF_PACKET", 17), 3))
attempt("a route of its own", add_route)

for name, run in ATTEMPTS.items():
    try:
        reply = run()
    except (OSError, ValueError, struct.error) as error:
        reply = b""
        print(f"{name}: {type(error).__name__} {error}", file=sys.stderr)  # noqa: T201
    wanted = "10.99.112.10" if name.startswith("control") else ADDRESS
    outcome = "reached" if f"served {wanted}".encode() in (reply or b"") else "held"
    print(f"{name}: {outcome}", flush=True)  # noqa: T201
