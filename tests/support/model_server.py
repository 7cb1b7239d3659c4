"""A model's API on this machine with scripted answers: real agents run without a key.

Speaks `/chat/completions` (OpenAI and compatible APIs), `/responses` (OpenAI), `/messages`
(Anthropic) and `:generateContent` (Google), with complete and streamed responses. An answer depends
only on the request: its model, its first user message (the task), and how many answers it already
contains (the turn). So any number of agents can share one server.

    python -m tests.support.model_server docs/demo/scenario.json --host bridge --port 8080
"""

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.support.bridge import bridge_gateway
from tests.support.model_dialects import dialect_of
from tests.support.model_script import Exchange, Json, Scenario, Turn, answer_to


class _Handler(BaseHTTPRequestHandler):
    server: "ModelServer"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        dialect = dialect_of(self.path)
        if dialect is None:
            self._send_json(404, {"error": {"message": f"no such path: {self.path}"}})
            return
        asked = dialect.asked(self.path, body)
        exchange = answer_to(self.server.scenario, self.path, self._key(), asked)
        exchange = replace(exchange, said=json.dumps(body, ensure_ascii=False))
        if self.server.is_refusing():
            exchange = replace(exchange, turn=Turn(status=429, text="Rate limit reached"))
        self.server.exchanges.append(exchange)
        if self.server.closing.wait(exchange.turn.delay):
            return
        if exchange.turn.status != 200:
            self._send_json(exchange.turn.status, dialect.error(exchange.turn))
        elif dialect.wants_stream(self.path, body):
            self._send_stream(dialect.stream(exchange))
        else:
            self._send_json(200, dialect.answer(exchange))

    def _key(self) -> str:
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        names = ("x-api-key", "x-goog-api-key")
        return next((self.headers[name] for name in names if name in self.headers), bearer)

    def _send_json(self, status: int, body: Json) -> None:
        self._send(status, "application/json", [json.dumps(body)])

    def _send_stream(self, events: Iterable[str]) -> None:
        self._send(200, "text/event-stream", events)

    def _send(self, status: int, kind: str, parts: Iterable[str]) -> None:
        # An agent may have been stopped while it waited for this answer.
        with contextlib.suppress(ConnectionError):
            # HTTP/1.0: the end of the connection is the end of the answer.
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if status != 200:
                # Keeps the waits of clients short that honour this header.
                self.send_header("Retry-After-Ms", "100")
            self.end_headers()
            for part in parts:
                self.wfile.write(part.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: `ModelServer.exchanges` contains all requests."""


class ModelServer(ThreadingHTTPServer):
    """The server, which answers while its `with` block is open."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        scenario: Scenario,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        outage: float = 0.0,
    ) -> None:
        """Bind the address.

        Args:
            scenario: The answers.
            host: The address to listen on.
            port: The port; 0 for any free port.
            outage: Seconds from the first request on, in which each request is answered with 429.
        """
        super().__init__((host, port), _Handler)
        self.scenario = scenario
        self.exchanges: list[Exchange] = []
        """Every request so far."""
        self.closing = threading.Event()
        self._outage = outage
        self._first: float | None = None
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The server's URL without a path."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def is_refusing(self) -> bool:
        """Return whether requests are refused now; the outage starts with the first request."""
        if self._first is None:
            self._first = time.monotonic()
        return time.monotonic() - self._first < self._outage

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


def main() -> None:
    """Serve a scenario file until interrupted; print the address first."""
    parser = argparse.ArgumentParser(description="Answer as a model would, from a script")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--host", default="127.0.0.1", help="`bridge`: where containers reach it")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    scenario = Scenario.from_json(options.scenario.read_text(encoding="utf-8"))
    try:
        host = bridge_gateway() if options.host == "bridge" else options.host
        server = ModelServer(scenario, host=host, port=options.port)
    except OSError as error:
        parser.exit(1, f"error: no address to listen on: {error}\n")
    with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
