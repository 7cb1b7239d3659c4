"""A Unix socket in front of the Docker daemon's, whose connections break or are altered."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import docker

_DAEMON = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
_PIECE = 16 * 1024


class CutSocket:
    """Passes connections on; `cut` and `flip` decide what happens to their bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.up = self.down = 0
        """Bytes that were passed on to the daemon and from it."""
        self.cut_up: int | None = None
        """Number of bytes to the daemon after which each connection breaks."""
        self.cut_down: int | None = None
        """Number of bytes from the daemon after which each connection breaks."""
        self.flip: bytes = b""
        """Bytes from the daemon of which one bit is changed, the first time that they appear."""
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._open: list[socket.socket] = [self._server]
        threading.Thread(target=self._serve, daemon=True).start()

    def client(self) -> docker.APIClient:
        """Return a client whose connections go through this socket."""
        return docker.APIClient(base_url=f"unix://{self.path}", version="auto")

    def _serve(self) -> None:
        while True:
            try:
                ours, _ = self._server.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(_DAEMON)
            self._open += [ours, theirs]
            for work in (self._to_daemon, self._from_daemon):
                threading.Thread(target=work, args=(ours, theirs), daemon=True).start()

    def _to_daemon(self, ours: socket.socket, theirs: socket.socket) -> None:
        def passed(count: int) -> None:
            self.up += count

        _pass(ours, theirs, lambda: self.cut_up, passed, lambda data: data)

    def _from_daemon(self, ours: socket.socket, theirs: socket.socket) -> None:
        def passed(count: int) -> None:
            self.down += count

        _pass(theirs, ours, lambda: self.cut_down, passed, self._altered)

    def _altered(self, data: bytes) -> bytes:
        if self.flip and self.flip in data:
            data = data.replace(self.flip, bytes([self.flip[0] ^ 1]) + self.flip[1:], 1)
            self.flip = b""
        return data

    def close(self) -> None:
        for one in self._open:
            one.close()


def _pass(
    source: socket.socket,
    target: socket.socket,
    limit: Callable[[], int | None],
    passed: Callable[[int], None],
    altered: Callable[[bytes], bytes],
) -> None:
    total = 0
    try:
        while data := source.recv(_PIECE):
            total += len(data)
            passed(len(data))
            target.sendall(altered(data))
            if (most := limit()) is not None and total >= most:
                break
        else:
            target.shutdown(socket.SHUT_WR)
            return
    except OSError:
        pass
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
