"""A git host on this machine: smart HTTP by `git http-backend`, for clients with its token."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Handler(BaseHTTPRequestHandler):
    server: "GitHost"

    def do_GET(self) -> None:
        self.server.seen.append(f"{self.command} {self.path}")
        body = self._body()
        if self.headers.get("Authorization") != self.server.expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        head, _, content = self._backend(body).partition(b"\r\n\r\n")
        headers = [line.partition(": ")[::2] for line in head.decode().split("\r\n")]
        status = next((text for name, text in headers if name == "Status"), "200 OK")
        self.send_response(int(status.split()[0]))
        for name, text in headers:
            if name != "Status":
                self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(parts)

    def _backend(self, body: bytes) -> bytes:
        path, _, query = self.path.partition("?")
        asked = {
            "GIT_PROJECT_ROOT": str(self.server.root), "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query,
            "REMOTE_USER": "ann", "REMOTE_ADDR": "192.0.2.1", "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/", **asked}
        command = ["git", "-c", "safe.directory=*", "http-backend"]
        return subprocess.run(command, input=body, capture_output=True, env=env, check=True).stdout

    def log_message(self, *_: object) -> None:
        """Log nothing: `GitHost.seen` has all requests."""


class GitHost(ThreadingHTTPServer):
    """The host. Its repositories accept pushes."""

    daemon_threads = True

    def __init__(self, root: Path, address: str, credentials: str) -> None:
        super().__init__((address, 0), _Handler)
        self.root = root
        self.expected = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        self.seen: list[str] = []
        """Method and path of each request."""

    @property
    def place(self) -> str:
        """Address and port."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"


@contextmanager
def git_host(root: Path, address: str, credentials: str) -> Iterator[GitHost]:
    """Serve the repositories in a directory."""
    with GitHost(root, address, credentials) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
