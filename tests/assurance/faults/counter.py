"""A server outside of the containers to which tasks report that they run."""

import ctypes
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.support.bridge import bridge_gateway

_CLONE_NEWNET = 0x40000000


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256


def _enter(network: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with network.open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {network}")


class Tally:
    """Number of times that each word was reported."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._lock = threading.Lock()
        self._said: Counter[str] = Counter()

    def add(self, word: str) -> None:
        """Add one to the number of a word."""
        with self._lock:
            self._said[word] += 1

    def __getitem__(self, word: str) -> int:
        with self._lock:
            return self._said[word]

    def __repr__(self) -> str:
        with self._lock:
            return repr(dict(self._said))


@contextmanager
def tally(address: str | None = None, network: Path | None = None) -> Iterator[Tally]:
    """Listen for reports of tasks during the block.

    Args:
        address: Address to listen on. Default: that of the default bridge.
        network: Network namespace of the address.
    """

    class Handler(socketserver.StreamRequestHandler):
        timeout = 20

        def handle(self) -> None:
            counts.add(self.rfile.readline(200).decode().strip())
            # The task waits for this answer, so it continues only after it was counted.
            self.wfile.write(b"counted\n")

    def listen() -> _Server:
        if network is not None:
            _enter(network)
        return _Server((address or bridge_gateway(), 0), Handler)

    # Only this thread enters the namespace; the socket stays in it after the thread has ended.
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(listen).result()
    with made as server:
        counts = Tally(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield counts
        finally:
            server.shutdown()
            thread.join()
