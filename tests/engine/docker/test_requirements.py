"""Tests that unsupported engines are refused by name, before anything is created.

What they answer was recorded: Podman 5.4.2 as root, Docker 26.1.5 rootless and as root.
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.docker.requirements import check_address
from orchestrator.errors import UnsupportedError
from tests.support.cli import Completed, orchestrator
from tests.support.repository import git

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
INFO = {
    "ServerVersion": "26.1.5",
    "NCPU": 4,
    "MemTotal": 8 * 1024**3,
    "OperatingSystem": "Debian GNU/Linux 13",
    "Runtimes": {"runc": {"path": "runc"}},
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
}
ROOTLESS = INFO | {"SecurityOptions": [*INFO["SecurityOptions"], "name=rootless"]}  # type: ignore[misc]


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
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def tried(repo: Path, host: str, *command: str) -> Completed:
    return orchestrator(*command, cwd=repo, env={"DOCKER_HOST": host})


def untouched(repo: Path) -> bool:
    branches = git(repo, "branch", "--list", "architect/*")
    runs = list((repo / ".git" / "orchestrator" / "runs").glob("*"))
    return not branches and not runs and not list(repo.glob(".architect-*"))


PARALLEL = ("parallel", "--agent-cli", "shell", "true")


@pytest.mark.parametrize(
    ("version", "info", "said"),
    [
        (PODMAN, INFO | {"ServerVersion": "5.4.2"}, "Podman 5.4.2 is not supported"),
        (DOCKER, ROOTLESS, "rootless Docker is not supported"),
    ],
    ids=["podman", "rootless"],
)
def test_unsupported_engine_on_a_socket_is_refused(
    repo: Path, tmp_path: Path, version: dict[str, Any], info: dict[str, Any], said: str
) -> None:
    path = tmp_path / "engine.sock"
    answers: Any = answering(version, info)
    with serving(UnixServer(str(path), answers)):
        host = f"unix://{path}"
        done = tried(repo, host, *PARALLEL)
        looked_at = tried(repo, host, "doctor")
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: {said}")
    assert "\n\nhint: use a local Docker daemon that root started" in done.stderr
    assert looked_at.returncode == 3
    assert f"✗ engine: {said}" in looked_at.stdout
    assert "worktrees" not in looked_at.stdout
    assert untouched(repo)
    assert answers.asked == []


def test_engine_over_the_network_is_refused(repo: Path) -> None:
    answers: Any = answering(DOCKER, INFO)
    server = HTTPServer(("127.0.0.1", 0), answers)
    host = f"tcp://127.0.0.1:{server.server_port}"
    with serving(server):
        done = tried(repo, host, *PARALLEL)
    assert done.returncode == 3
    assert done.stderr.startswith("error: an engine that is not reached over a Unix socket is not")
    assert f"(`{host}`)" in done.stderr
    assert untouched(repo)


def test_engine_over_ssh_is_refused_without_connecting(repo: Path) -> None:
    done = tried(repo, "ssh://nobody@there.invalid", *PARALLEL)
    assert done.returncode == 3
    assert "(`ssh://nobody@there.invalid`)" in done.stderr
    assert "\nhint: use a local Docker daemon" in done.stderr
    cleaned = tried(repo, "ssh://nobody@there.invalid", "parallel-cleanup")
    assert cleaned.returncode == 0
    assert cleaned.stderr.startswith("nothing to clean up\n")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DOCKER_HOST", "/run/docker.sock", "hint: export DOCKER_HOST=unix:///run/docker.sock"),
        ("DOCKER_HOST", "~/docker.sock", "`DOCKER_HOST` is the path `~/docker.sock`"),
        ("DOCKER_CONTEXT", "colima", "`DOCKER_CONTEXT` is `colima`: contexts are not supported"),
    ],
)
def test_variable_that_the_engine_would_ignore_is_refused(monkeypatch, name, value, said):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(UnsupportedError) as caught:
        check_address()
    assert said in f"{caught.value.message}\nhint: {caught.value.hint}"


def test_default_context_and_a_context_beside_an_address_are_accepted(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    check_address()
    monkeypatch.setenv("DOCKER_CONTEXT", "colima")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
    check_address()
