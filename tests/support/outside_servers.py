"""Servers of `tests.support.outside`: a name server, and web servers with and without TLS.

Run in a network namespace, with two arguments: a folder, from which `records`, `certificate` and
`key` are read and to which `seen` is written; and the address of the name server.
"""

import http.server
import json
import mimetypes
import socketserver
import ssl
import struct
import sys
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
RECORDS: dict[str, list[str]] = json.loads((FOLDER / "records").read_text())
SITE = FOLDER / "site"
"""Files to serve, if a test makes them; else every path is answered."""
LOCK = threading.Lock()
COUNTS: dict[str, int] = {}


def note(**entry: Any) -> None:
    with LOCK, (FOLDER / "seen").open("a") as file:
        file.write(json.dumps(entry) + "\n")


class Names(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        question, transport = self.request
        labels, at = [], 12
        # A query that is cut short counts as well: whatever it contains has left.
        while at < len(question) and question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode("latin-1"))
            at += 1 + question[at]
        name, kind = ".".join(labels).lower(), question[at + 1 : at + 3]
        note(kind="dns", name=name)
        known = RECORDS.get(name, []) if kind == b"\0\1" else []
        with LOCK:
            turn = COUNTS[name] = COUNTS.get(name, -1) + 1
        answers = known[turn % len(known) :][:1] if known else []
        flags = 0x8180 if name in RECORDS else 0x8183
        reply = question[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, 0)
        reply += question[12 : at + 5]
        for address in answers:
            reply += b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 0, 4)
            reply += bytes(map(int, address.split(".")))
        transport.sendto(reply, self.client_address)


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        here = self.connection.getsockname()
        secure = isinstance(self.connection, ssl.SSLSocket)
        note(
            kind="tls" if secure else "http",
            address=here[0],
            port=here[1],
            host=self.headers.get("Host"),
            path=self.path,
        )
        file = SITE / self.path.partition("?")[0].lstrip("/")
        if file.is_dir():
            file /= "index.html"
        if file.is_file():
            body = file.read_bytes()
        else:
            body = f"served {here[0]}:{here[1]} {self.path}\n".encode()
        found = file.is_file() or not SITE.exists()
        self.send_response(200 if found else 404)
        kind, _ = mimetypes.guess_type(file)
        self.send_header("Content-Type", kind or "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        super().__init__(("0.0.0.0", port), Web)

    def finish_request(self, request: Any, address: Any) -> None:
        note(kind="connection", address=request.getsockname()[0], port=request.getsockname()[1])
        if self.context is not None:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except OSError:
                return
        super().finish_request(request, address)

    def handle_error(self, *_: object) -> None:
        pass


def main() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "certificate", FOLDER / "key")
    servers = [
        socketserver.ThreadingUDPServer((sys.argv[2], 53), Names),
        *(Server(port) for port in (22, 80, 8080)),
        *(Server(port, context) for port in (443, 8443)),
    ]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
