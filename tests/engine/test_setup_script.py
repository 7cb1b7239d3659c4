"""Tests of images/setup-engine.sh without installing or starting an engine."""

import os
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.engine import machine
from orchestrator.engine.machine import prepare_machine
from tests.engine.docker.test_address import make_context
from tests.support.errors import raises

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
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
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


def run(path: str, host: str, *args: str, **kwargs: object) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": path, "DOCKER_HOST": host, "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        ["sh", str(SCRIPT), *args],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        **kwargs,
    )


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """Return a folder, to be used as PATH, with few programs and an `apt-get` that can install."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("sh", "id", "mktemp", "rm", "tail", "sed", "touch", "chmod"):
        (folder / name).symlink_to(str(shutil.which(name)))
    installs = f'for name; do :; done; touch "{folder}/$name"; chmod 755 "{folder}/$name"'
    (folder / "apt-get").write_text(f'#!/bin/sh\n[ "$1" = update ] && exit\n{installs}\n')
    (folder / "sudo").write_text('#!/bin/sh\nshift; exec "$@"\n')
    for name in ("apt-get", "sudo"):
        (folder / name).chmod(0o755)
    return folder


def test_running_engine_is_used_silently(complete_path: str, engine: Path) -> None:
    done = run(complete_path, f"unix://{engine}", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_script_works_without_stdin(complete_path: str, engine: Path) -> None:
    done = run(complete_path, f"unix://{engine}", preexec_fn=lambda: os.close(0))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def local_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no context choose an engine."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "docker").mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.mark.usefixtures("local_choice")
def test_package_prepares_a_machine_without_a_virtual_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    script = tmp_path / "images" / SCRIPT.name
    monkeypatch.setattr(machine, "build_files", lambda: tmp_path)
    script.write_text('echo "$*, $PYTHON" >&2')
    said: list[str] = []
    prepare_machine(said.append)
    assert said == [f"engine, {sys.executable}"]
    script.write_text("printf 'error: no engine\\n\\nhint: start it\\n' >&2; exit 3")
    with raises("machine.unprepared", "no engine") as raised:
        prepare_machine(said.append)
    assert raised.value.hint == "start it"


@pytest.mark.parametrize(
    "choice",
    [
        {"DOCKER_HOST": "ssh://me@far.example"},
        {"DOCKER_HOST": "unix:///nowhere/engine.sock"},
        {"DOCKER_CONTEXT": "mine"},
        {},  # the context of `docker context use`
    ],
)
@pytest.mark.usefixtures("local_choice")
def test_no_engine_is_installed_beside_the_chosen_one(
    choice: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("mine", "other"):
        make_context(tmp_path / "docker", name, "unix:///nowhere/engine.sock")
    (tmp_path / "docker/config.json").write_text('{"currentContext": "other"}')
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / SCRIPT.name).write_text('echo "$*" >&2')
    monkeypatch.setattr(machine, "build_files", lambda: tmp_path)
    for name, value in choice.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    prepare_machine(said.append)
    assert said == ["packages"]


def test_packages_are_installed_without_an_engine(bare_path: Path) -> None:
    for name in ("date", "sleep", "cat"):
        (bare_path / name).symlink_to(str(shutil.which(name)))
    done = run(str(bare_path), "ssh://me@far.example", "packages", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "installing git\ninstalling mmdebstrap\n")


@pytest.mark.usefixtures("local_choice")
def test_nothing_is_installed_for_a_context_that_is_missing(
    bare_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(bare_path))
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with raises("docker-context.unreadable", "`gone`"):
        prepare_machine(pytest.fail)


def test_missing_mmdebstrap_is_only_noted(
    bare_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("git", "date", "sleep", "cat"):
        (bare_path / name).symlink_to(str(shutil.which(name)))
    (bare_path / "apt-get").unlink()
    monkeypatch.setenv("PATH", str(bare_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{engine}")
    said: list[str] = []
    prepare_machine(said.append)
    assert said == ["note: no mmdebstrap: the base image can only be pulled"]


def test_unreachable_remote_engine_is_an_error(complete_path: str, tmp_path: Path) -> None:
    done = run(complete_path, f"unix://{tmp_path}/gone", stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    assert done.stderr == (
        f"error: the Docker engine at `unix://{tmp_path}/gone` does not answer\n\n"
        "hint: start it, or unset `DOCKER_HOST`\n"
    )


def test_missing_chromium_is_installed_without_an_engine(bare_path: Path) -> None:
    done = run(str(bare_path), "unix:///nowhere", "chromium", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "installing chromium\n")
    done = run(str(bare_path), "unix:///nowhere", "chromium", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")


def test_chromium_that_cannot_be_installed_is_an_error(bare_path: Path) -> None:
    (bare_path / "apt-get").unlink()
    done = run(str(bare_path), "unix:///nowhere", "chromium", stdin=subprocess.DEVNULL)
    assert done.returncode == 3
    assert done.stderr == (
        "error: cannot install chromium\n\nhint: install by hand: `apt-get install chromium`\n"
    )
