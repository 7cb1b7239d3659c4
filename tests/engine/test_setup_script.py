"""Tests of images/setup-engine.sh without installing or starting an engine."""

import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "images" / "setup-engine.sh"


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.rfile.readline()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nOK")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Path]:
    """Return a socket that answers pings."""
    path = tmp_path / "engine.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield path
        server.shutdown()
        thread.join()


@pytest.fixture
def complete_path(tmp_path: Path) -> str:
    """Return a PATH with all programs, so that nothing is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mmdebstrap", "apt-get", "sudo"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} was called >&2; exit 1\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def run(path: str, host: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": path, "DOCKER_HOST": host, "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        ["sh", str(SCRIPT)], env=environ, capture_output=True, text=True, timeout=60, **kwargs
    )


def test_running_engine_is_used_silently(complete_path: str, engine: Path) -> None:
    done = run(complete_path, f"unix://{engine}", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_script_works_without_stdin(complete_path: str, engine: Path) -> None:
    done = run(complete_path, f"unix://{engine}", preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (0, "")


def test_unreachable_remote_engine_is_an_error(complete_path: str, tmp_path: Path) -> None:
    done = run(complete_path, f"unix://{tmp_path}/gone", stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    assert done.stderr == (
        f"error: the Docker engine at `unix://{tmp_path}/gone` does not answer\n\n"
        "hint: start it, or unset `DOCKER_HOST`\n"
    )
