"""A proxy before the API server, whose connections break or are altered.

It speaks plain HTTP, so bytes of exec streams can be counted and changed.
"""

import json
import selectors
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from orchestrator.engine.kubernetes.cluster import Cluster

_PIECE = 16 * 1024


class CutApi:
    """Passes connections on; the attributes decide what happens to their bytes."""

    def __init__(self, kubeconfig: Path, made: Path) -> None:
        """Listen, and write to `made` the settings of a client that uses this proxy."""
        settings = json.loads(kubeconfig.read_text())
        (cluster,) = (entry["cluster"] for entry in settings["clusters"])
        url = urlsplit(cluster["server"])
        self._server = (str(url.hostname), int(url.port or 443))
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        settings["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        made.write_text(json.dumps(settings))
        self.kubeconfig = made
        self.cut_up: int | None = None
        """Number of bytes to the API server after which each connection breaks."""
        self.cut_down: int | None = None
        """Number of bytes from the API server after which each connection breaks."""
        self.draw: Callable[[], int] | None = None
        """Draws the number of bytes from the API server after which one exec stream breaks."""
        self.flip = b""
        """Bytes from the API server of which one bit is changed, when they appear first."""
        self.up = 0
        """Bytes that were passed on to the API server."""
        self.cuts: Counter[str] = Counter()
        """Number of connections that were broken, by the pod of an exec stream."""
        self.is_down = False
        """Whether all connections break, and new ones are refused."""
        threading.Thread(target=self._serve, daemon=True).start()

    def client(self) -> Cluster:
        """Return a client whose connections go through this proxy."""
        return Cluster(kubeconfig=self.kubeconfig)

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(ours,), daemon=True).start()

    def _pass(self, ours: socket.socket) -> None:
        """Pass both directions of a connection on in one thread: TLS is not safe in two."""
        name = self._server[0]
        with (
            suppress(OSError),
            ours,
            socket.create_connection(self._server) as raw,
            self._trust.wrap_socket(raw, server_hostname=name) as theirs,
        ):
            self._pump(ours, theirs)

    def _pump(self, ours: socket.socket, theirs: ssl.SSLSocket) -> None:
        up = down = 0
        drawn: int | None = None
        pod = ""
        with selectors.DefaultSelector() as selector:
            for one in (ours, theirs):
                selector.register(one, selectors.EVENT_READ)
            while not self.is_down:
                ready = [key.fileobj for key, _ in selector.select(0.5)]
                if ours in ready:
                    data = ours.recv(_PIECE)
                    if b"/exec?" in data:
                        pod = data.partition(b"/exec?")[0].rpartition(b"/")[2].decode()
                        drawn = self.draw() if self.draw else None
                    up, self.up = up + len(data), self.up + len(data)
                    theirs.sendall(data)
                    if not data or self._breaks(pod, up, self.cut_up):
                        return
                if theirs in ready:
                    data = theirs.recv(_PIECE)
                    while theirs.pending():
                        data += theirs.recv(_PIECE)
                    down += len(data)
                    if self.flip and self.flip in data:
                        changed = bytes([self.flip[0] ^ 1]) + self.flip[1:]
                        data, self.flip = data.replace(self.flip, changed, 1), b""
                    ours.sendall(data)
                    limits = [most for most in (drawn, self.cut_down) if most is not None]
                    if not data or self._breaks(pod, down, min(limits, default=None)):
                        return

    def _breaks(self, pod: str, total: int, most: int | None) -> bool:
        breaks = most is not None and total >= most
        self.cuts[pod] += breaks
        return breaks
