"""Where tasks say that they run: outside of their containers, and of everything of ours."""

import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.bridge import bridge_gateway


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256


class Tally:
    """How often each word was said."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._lock = threading.Lock()
        self._said: Counter[str] = Counter()

    def add(self, word: str) -> None:
        """Count a word once more."""
        with self._lock:
            self._said[word] += 1

    def __getitem__(self, word: str) -> int:
        with self._lock:
            return self._said[word]

    def __repr__(self) -> str:
        with self._lock:
            return repr(dict(self._said))


@contextmanager
def tally() -> Iterator[Tally]:
    """Listen on the default bridge's address, for as long as this is entered."""

    class Handler(socketserver.StreamRequestHandler):
        timeout = 20

        def handle(self) -> None:
            counts.add(self.rfile.readline(200).decode().strip())
            # Only now does the task go on.
            self.wfile.write(b"counted\n")

    with _Server((bridge_gateway(), 0), Handler) as server:
        counts = Tally(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield counts
        finally:
            server.shutdown()
            thread.join()
