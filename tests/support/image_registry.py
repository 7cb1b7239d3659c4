"""A registry of images that keeps them in memory, on a port of 127.0.0.1."""

import base64
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, login: str | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wanted = login and "Basic " + base64.b64encode(login.encode()).decode()
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.uploads: dict[str, bytearray] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = bytearray()
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size + 2)[:size]
        self.rfile.readline()
        return bytes(data)

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        name, body = path.rpartition("/")[2], self._body()
        if self.server.wanted and self.headers.get("Authorization") != self.server.wanted:
            self._answer(401, b"{}", WWW_Authenticate='Basic realm="test"')
        elif path == "/v2/":
            self._answer(200, b"{}")
        elif self.command == "POST":
            place = f"{path.rstrip('/')}/{len(self.server.uploads)}"
            self.server.uploads[place] = bytearray()
            self._answer(202, Location=place, Range="0-0", Docker_Upload_UUID=place[-9:])
        elif path in self.server.uploads:
            data = self.server.uploads[path]
            data += body
            if self.command == "PUT":
                digest = query.partition("digest=")[2].replace("%3A", ":")
                self.server.blobs[digest] = bytes(data)
            status = 201 if self.command == "PUT" else 202
            self._answer(status, Location=path, Range=f"0-{max(len(data) - 1, 0)}")
        elif self.command == "PUT":
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.server.manifests |= {path: body, digest: body}
            self._answer(201, Location=path, Docker_Content_Digest=digest)
        else:
            known = self.server.blobs if "/blobs/" in path else self.server.manifests
            found = known.get(name) or known.get(path)
            self._answer(404, b"{}") if found is None else self._answer(200, found)

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = _serve

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def image_registry(login: str | None = None) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Serve a registry; yield its address, and the manifests that it has, by path and digest.

    Args:
        login: User and password as `USER:PASSWORD`, without which it refuses everything.
    """
    with _Server(login) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", server.manifests
        server.shutdown()
