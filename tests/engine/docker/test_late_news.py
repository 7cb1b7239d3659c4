"""Tests of a daemon that learns late why a container ended."""

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread
from time import monotonic

import docker

from orchestrator.engine.docker.container import DockerContainer

LATE = 1.0
"""Seconds between the end and the first inspection that tells of the kill."""


class Daemon(BaseHTTPRequestHandler):
    """Describes a container that the kernel killed for its memory."""

    ended_at = float("inf")

    def do_GET(self) -> None:
        self.answer({"State": {"OOMKilled": monotonic() >= Daemon.ended_at + LATE}})

    def do_POST(self) -> None:
        self.answer({"StatusCode": 137})
        Daemon.ended_at = monotonic()

    def answer(self, told: object) -> None:
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_kill_for_memory_that_the_daemon_tells_late_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with ThreadingUnixStreamServer(str(path), Daemon) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        client = docker.APIClient(base_url=f"unix://{path}", version="1.41")
        try:
            ended = DockerContainer(client, "c", ports={}, adopted=True).wait(None)
        finally:
            client.close()
            server.shutdown()
            thread.join()
    assert (ended.exit_code, ended.oom_killed) == (137, True)
