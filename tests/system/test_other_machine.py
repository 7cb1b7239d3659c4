"""Tests against a daemon that sees no file of this machine, as one on another machine."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker import ssh as tunnels
from orchestrator.engine.docker.machine_network import this_machine
from orchestrator.engine.interface.labels import REPOSITORY
from orchestrator.state.record.states import WorkerState
from tests.support.cli import orchestrator, start
from tests.support.live import eventually, states
from tests.support.own_daemon import Daemon, by_tls, own_daemon
from tests.support.repository import git
from tests.support.sshd import Sshd, ssh_server

pytestmark = [
    pytest.mark.docker,
    pytest.mark.extra,
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts a second daemon"),
]
RUN = ("parallel", "--agent-cli", "shell", "--network", "none", "--workers", "1")
Way = Mapping[str, str]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    hidden = tmp_path_factory.getbasetemp()
    with (
        tempfile.TemporaryDirectory(prefix="orc-", dir="/var/tmp") as short,
        own_daemon(Path(short) / "d", hidden=(hidden,), tls=True) as made,
    ):
        yield made


@pytest.fixture(params=["tls", "ssh", "stdio", "socket"])
def way(request: pytest.FixtureRequest, daemon: Daemon, tmp_path: Path) -> Iterator[Way]:
    """The variables by which the daemon is reached; afterwards nothing is left on either side."""
    before = set(Path(tempfile.gettempdir()).glob("orc-ssh-*"))
    if request.param == "tls":
        yield by_tls(daemon)
    elif request.param in ("ssh", "stdio"):
        # Without forwarding, the server runs `docker system dial-stdio` for each connection.
        with ssh_server(tmp_path / "ssh", daemon, forwards=request.param == "ssh") as server:
            yield {"DOCKER_HOST": server.url, "PATH": server.path}
            eventually(lambda: server.clients() == [], "the end of ssh")
    else:
        yield {"DOCKER_HOST": daemon.url}
    assert set(Path(tempfile.gettempdir()).glob("orc-ssh-*")) <= before
    assert left(daemon) == []


def left(daemon: Daemon, **filters: str) -> list[str]:
    """Return the objects of the orchestrator in the daemon."""
    client = docker.APIClient(base_url=daemon.url, version="auto")
    wanted = {"label": [REPOSITORY], **filters}
    try:
        containers = client.containers(all=True, filters=wanted)
        volumes = client.volumes(filters=wanted)["Volumes"] or []
        networks = client.networks(filters=wanted)
    finally:
        client.close()
    return [*(c["Names"][0] for c in containers), *(o["Name"] for o in (*volumes, *networks))]


def test_run_gets_copies_and_its_commit_comes_back(repo: Path, way: Way) -> None:
    done = orchestrator(*RUN, "echo x > f; cat a.txt", "--json", cwd=repo, env=way)
    assert done.returncode == 0, done.stderr
    result = done.results[1]
    assert (result["status"], result["transfer"]) == ("success", "streams")
    assert "copies are sent" in done.stderr
    assert git(repo, "show", "architect/parallel-1:f") == "x"
    merged = orchestrator("merge", "1", cwd=repo, env=way)
    assert merged.returncode == 0, merged.stderr
    assert (repo / "f").read_text() == "x\n"


@pytest.mark.parametrize("way", ["tls", "ssh"], indirect=True)
def test_killed_run_is_resumed_at_its_own_engine(repo: Path, way: Way) -> None:
    task = "echo begun >> runs.txt; sleep 12; echo done >> runs.txt"
    process = start(
        *RUN, task, cwd=repo, env=way, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    process.send_signal(signal.SIGKILL)
    process.wait()
    # The run knows its engine, whatever DOCKER_HOST says by then.
    others = {name: value for name, value in way.items() if name != "DOCKER_HOST"}
    said = orchestrator("exec", "1", "--", "cat", "runs.txt", cwd=repo, env=others)
    assert said.stdout == "begun\n", said.stderr
    done = orchestrator("resume", "--json", cwd=repo, env=others)
    assert done.returncode == 0, done.stderr
    assert done.results[1]["status"] == "success"
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun\ndone"
    logged = orchestrator("logs", "1", cwd=repo, env=others)
    assert logged.returncode == 0, logged.stderr
    again = orchestrator("retry", "1", "--json", cwd=repo, env=way)
    assert again.returncode == 0, again.stderr
    cleaned = orchestrator("parallel-cleanup", cwd=repo, env=others)
    assert cleaned.returncode == 0, cleaned.stderr
    assert git(repo, "branch", "--list", "architect/*") == ""


@pytest.mark.parametrize("way", ["tls", "ssh"], indirect=True)
def test_stopped_run_keeps_its_work_and_a_dead_one_is_removed(repo: Path, way: Way) -> None:
    process = start(
        *RUN, "echo kept > f; sleep 300", "--json", cwd=repo, env=way,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    assert orchestrator("stop", "--all", cwd=repo, env=way).returncode == 0
    stdout, _ = process.communicate(timeout=120)
    assert json.loads(stdout)["results"][0]["reason"] == "cancelled"
    assert git(repo, "show", "architect/parallel-1:f") == "kept"

    process = start(
        *RUN, "sleep 300", cwd=repo, env=way, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: WorkerState.RUNNING in states(repo), "the second start")
    process.send_signal(signal.SIGKILL)
    process.wait()
    purged = orchestrator("parallel-cleanup", "--purge", cwd=repo, env=way)
    assert purged.returncode == 0, purged.stderr


@pytest.mark.parametrize("way", ["tls", "ssh"], indirect=True)
def test_doctor_names_engine_and_transfer(repo: Path, way: Way) -> None:
    done = orchestrator("doctor", cwd=repo, env=way)
    assert f"at `{way['DOCKER_HOST']}`" in done.stdout
    assert "copies are sent to the engine (`transfer: streams`) (tested)" in done.stdout


def test_mounts_are_refused(repo: Path, daemon: Daemon) -> None:
    env = {"DOCKER_HOST": daemon.url}
    done = orchestrator(*RUN, "true", "--transfer", "mounts", cwd=repo, env=env)
    assert done.returncode == 3, done.stderr
    assert "does not see the files of this machine" in done.stderr
    assert "Traceback" not in done.stderr


PUBLIC = "44.55.66.7"
"""An address that is closed to workers for no other reason than that it is the machine's own."""
_LISTENER = """
import socket
with socket.create_server(({address!r}, 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"reached")
        connection.close()
"""


@pytest.fixture
def listener(daemon: Daemon) -> Iterator[int]:
    """The port of a listener at a public address of the engine's machine."""
    space = f"--net={daemon.network}"
    subprocess.run(
        ("nsenter", space, "ip", "addr", "replace", f"{PUBLIC}/32", "dev", "lo"), check=True
    )
    program = _LISTENER.format(address=PUBLIC)
    process = subprocess.Popen(
        ("nsenter", space, sys.executable, "-c", program), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("way", ["tls", "ssh"], indirect=True)
def test_workers_do_not_reach_the_machine_of_their_engine(
    repo: Path, daemon: Daemon, way: Way, listener: int
) -> None:
    daemon.hosts.write_text(f"{PUBLIC} build.example\n")
    reach = f"timeout 5 bash -c 'cat < /dev/tcp/{PUBLIC}/{listener}'; echo"
    said = {}
    for allow in ((), ("--allow", f"build.example:{listener}")):
        done = orchestrator(
            "parallel", "--agent-cli", "shell", "--network", "open", "--workers", "1", *allow,
            reach, "--json", cwd=repo, env=way,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (result,) = done.results.values()
        said[bool(allow)] = (Path(result["log"]) / "stdout.log").read_text()
    # The name is only known there, and opens the address.
    assert said == {False: "\n", True: "reached\n"}


@pytest.mark.usefixtures("listener")
def test_addresses_are_those_of_the_engines_machine(
    daemon: Daemon, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in way.items():
        monkeypatch.setenv(name, value)
    engine = DockerEngine()
    try:
        engine.note_other_machine()
        found = engine._machine({})
        daemon.hosts.write_text(f"{PUBLIC} build.example\n")
        assert engine.resolve("build.example") == [PUBLIC]
        with pytest.raises(ValueError, match="nowhere"):
            engine.resolve("nowhere.invalid")
        with pytest.raises(ValueError, match="--help"):
            engine.resolve("--help")
    finally:
        engine.close()
        if way["DOCKER_HOST"].startswith("ssh:"):
            # Otherwise it stays until the process ends.
            tunnels.tunnel_to(way["DOCKER_HOST"]).close()
            tunnels._tunnel.cache_clear()
    here = this_machine("")
    assert PUBLIC in found.addresses
    assert not {*found.addresses} & {*here.addresses} - {"172.17.0.1"}
    assert found.routed != here.routed


@pytest.fixture
def ssh(daemon: Daemon, tmp_path: Path) -> Iterator[Sshd]:
    with ssh_server(tmp_path / "ssh", daemon) as server:
        yield server


def test_ports_of_workers_lead_there_by_ssh_only(repo: Path, daemon: Daemon, ssh: Sshd) -> None:
    run = ("parallel", "--agent-cli", "shell", "--network", "open", "--workers", "1", "--json")
    page = (*run, "--ports", "3000", "python3 -m http.server 3000")
    refused = orchestrator(*page, cwd=repo, env=by_tls(daemon))
    assert refused.returncode == 3
    assert "`DOCKER_HOST=ssh://USER@HOST`" in refused.stderr
    env = {"DOCKER_HOST": ssh.url, "PATH": ssh.path}
    process = start(*page, cwd=repo, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    (noted,) = (repo / ".git/orchestrator/runs").glob("*/ports-1")
    url = f"http://127.0.0.1:{noted.read_text()}/a.txt"
    answers: list[bytes] = []

    def answered() -> bool:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            answers.append(answer.read())
        return bool(answers)

    eventually(answered, "the worker's answer")
    assert answers == [(repo / "a.txt").read_bytes()]
    assert orchestrator("stop", "--all", cwd=repo, env=env).returncode == 0
    stdout, _ = process.communicate(timeout=120)
    assert json.loads(stdout)["results"][0]["ports"] == {"3000": int(noted.read_text())}
    assert left(daemon) == []
