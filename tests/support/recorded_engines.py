"""What engines answer to `/version` and `/info`, and a server that repeats it on a Unix socket.

Recorded: Podman 5.4.2 as root and 4.3.1 rootless, Docker 26.1.5 rootless and as root. The other
answers were made from these, with what other versions and the documentation of Docker Desktop and
Docker 29 say.
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

DOCKER = {
    "Platform": {"Name": ""},
    "Components": [{"Name": "Engine", "Version": "26.1.5"}, {"Name": "containerd"}],
    "Version": "26.1.5",
    "ApiVersion": "1.45",
    "MinAPIVersion": "1.24",
}
PODMAN = {
    "Platform": {"Name": "linux/amd64/debian-12"},
    "Components": [{"Name": "Podman Engine", "Version": "5.4.2"}, {"Name": "Conmon"}],
    "Version": "5.4.2",
    "ApiVersion": "1.41",
    "MinAPIVersion": "1.24",
}
INFO: dict[str, Any] = {
    "ServerVersion": "26.1.5",
    "NCPU": 4,
    "MemTotal": 8 * 1024**3,
    "OperatingSystem": "Debian GNU/Linux 13",
    "Runtimes": {"runc": {"path": "runc"}},
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
}
_LIMITED = ("MemoryLimit", "SwapLimit", "CpuCfsPeriod", "CpuCfsQuota", "PidsLimit")
ROOTLESS: dict[str, Any] = INFO | {
    "SecurityOptions": [*INFO["SecurityOptions"], "name=rootless"],
    "CgroupDriver": "none", "CgroupVersion": "1", **dict.fromkeys(_LIMITED, False),
}  # fmt: skip
ROOTLESS_PODMAN: dict[str, Any] = INFO | {
    "SecurityOptions": ["name=seccomp,profile=default"], "Rootless": True,
}  # fmt: skip
UNDELEGATED: dict[str, Any] = ROOTLESS | {
    "CgroupDriver": "systemd", "CgroupVersion": "2", "MemoryLimit": True, "PidsLimit": True,
    "Warnings": ["WARNING: No cpu cfs quota support", "WARNING: No cpuset support"],
}  # fmt: skip
OLD_PODMAN: dict[str, Any] = PODMAN | {
    "Components": [{"Name": "Podman Engine", "Version": "4.3.1"}], "Version": "4.3.1"
}  # fmt: skip
DESKTOP: dict[str, Any] = INFO | {
    "Name": "docker-desktop", "OperatingSystem": "Docker Desktop", "KernelVersion": "6.10-linuxkit"
}  # fmt: skip
NEWEST: dict[str, Any] = DOCKER | {
    "Components": [{"Name": "Engine", "Version": "29.0.0"}], "Version": "29.0.0",
    "ApiVersion": "1.52", "MinAPIVersion": "1.44",
}  # fmt: skip


def answering(version: dict[str, Any], info: dict[str, Any]) -> type[BaseHTTPRequestHandler]:
    """Return a server that describes an engine, and claims to have every image."""

    class Answers(BaseHTTPRequestHandler):
        asked: list[str] = []  # noqa: RUF012

        def do_GET(self) -> None:
            what = self.path.rpartition("/")[2]
            known: dict[str, Any] = {"version": version, "info": info}
            body = json.dumps(known.get(what, {"Id": "sha256:1"})).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            Answers.asked.append(self.path)
            self.send_error(500, "unexpected")

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            pass

    return Answers


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
