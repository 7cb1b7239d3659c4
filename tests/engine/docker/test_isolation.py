"""Tests of the isolation by the Docker engine, beyond the contract of all engines."""

import json
import re
import secrets
import socket
import time
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from orchestrator.base.errors import EngineError, PortTakenError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.spec import OverlayMount, TmpfsMount
from tests.support.containers import USER, Run, Starter, bind, finish
from tests.support.ports import free_port

pytestmark = pytest.mark.docker

SERVE = (
    "python3", "-c",
    "import http.server as s; print('up', flush=True); "
    "s.test(s.SimpleHTTPRequestHandler, port=8000, bind='0.0.0.0')",
)  # fmt: skip
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 8000), 2)"


def python(code: str) -> tuple[str, ...]:
    return ("python3", "-c", code)


def address(container_id: str) -> str:
    client = docker.APIClient(version="auto")
    try:
        networks = client.inspect_container(container_id)["NetworkSettings"]["Networks"]
    finally:
        client.close()
    return next(iter(networks.values()))["IPAddress"]


def test_memory_over_the_limit_is_reported_as_oom(docker_run: Run) -> None:
    status, _, _ = docker_run(*python("x = b'x' * (256 << 20)"), memory=64 << 20)
    assert status.exit_code == 137
    assert status.oom_killed


def test_swap_is_disabled(docker_start: Starter) -> None:
    container = docker_start("sleep", "300", memory=64 << 20)
    client = docker.APIClient(version="auto")
    host = client.inspect_container(container.id)["HostConfig"]
    client.close()
    assert (host["Memory"], host["MemorySwap"]) == (64 << 20, 64 << 20)


def test_processes_over_the_limit_cannot_start(docker_run: Run) -> None:
    task = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 20 & done; echo all"
    _, stdout, stderr = docker_run("sh", "-c", task, pids=10)
    assert stdout == b""
    assert re.search(rb"[Cc]annot fork|Resource temporarily unavailable", stderr)


def test_open_files_and_core_dumps_are_limited(docker_run: Run) -> None:
    _, stdout, _ = docker_run("sh", "-c", "ulimit -Hn; ulimit -Hc", open_files=100)
    assert stdout.split() == [b"100", b"0"]


def test_cpu_time_is_limited(docker_run: Run) -> None:
    """With half a CPU, CPU time is about half of the elapsed time."""
    code = (
        "import time; w, c = time.monotonic(), time.process_time()\n"
        "while time.monotonic() - w < 1.5: pass\n"
        "print((time.process_time() - c) / (time.monotonic() - w))"
    )
    _, stdout, _ = docker_run(*python(code), cpus=0.5)
    assert float(stdout) < 0.7


def test_a_paused_container_can_be_killed(docker_start: Starter) -> None:
    container = docker_start("sleep", "300")
    client = docker.APIClient(version="auto")
    client.pause(container.id)
    client.close()
    container.kill("SIGTERM")
    assert container.wait(60).exit_code == 143


def test_the_root_file_system_is_read_only(docker_run: Run) -> None:
    task = "for d in / /etc /usr/bin /var/tmp /opt; do touch $d/x 2>/dev/null && echo $d; done"
    assert docker_run("sh", "-c", task, user="0:0", capabilities=("DAC_OVERRIDE",))[1] == b""


def test_process_has_no_privileges(docker_run: Run) -> None:
    _, stdout, _ = docker_run("cat", "/proc/self/status")
    fields = dict(line.split(":\t", 1) for line in stdout.decode().splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [str(USER)] * 4
    assert fields["Gid"].split() == [str(USER)] * 4
    assert fields["Groups"].split() in ([], [str(USER)])
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name], 16) == 0, name
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"


def test_even_root_has_no_capabilities(docker_run: Run) -> None:
    _, stdout, _ = docker_run("grep", "^Cap", "/proc/self/status", user="0:0")
    assert {int(line.split()[1], 16) for line in stdout.splitlines()} == {0}


def test_engine_socket_is_not_in_the_container(docker_run: Run) -> None:
    task = "find / -xdev -name 'docker*.sock' 2>/dev/null; ls /var/run/docker.sock 2>/dev/null"
    assert docker_run("sh", "-c", task)[1] == b""


def test_orphaned_processes_are_reaped(docker_run: Run) -> None:
    """Without an init, zombies would count against the process limit."""
    code = (
        "import glob, os, time\n"
        "for _ in range(5):\n"
        "    if not (child := os.fork()):\n"
        "        os.fork() or (time.sleep(0.1), os._exit(0))\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "for _ in range(300):\n"
        "    time.sleep(0.1)\n"
        "    paths = glob.glob('/proc/[0-9]*/stat')\n"
        "    if len(paths) == 2: break\n"
        "states = [open(path).read().rpartition(')')[2][1] for path in paths]\n"
        "print(states.count('Z'), len(states))"
    )
    zombies, processes = docker_run(*python(code))[1].split()
    assert (zombies, processes) == (b"0", b"2")


def test_a_read_only_mount_cannot_be_written(docker_run: Run, shared: Path) -> None:
    status, _, stderr = docker_run(
        "touch", "/data/x", mounts=(bind(shared, "/data", read_only=True),)
    )
    assert status.exit_code != 0
    assert b"Read-only" in stderr
    assert list(shared.iterdir()) == []


def test_a_missing_mount_source_starts_nothing(
    docker_engine: DockerEngine, docker_start: Starter, tmp_path: Path, labels: dict[str, str]
) -> None:
    with pytest.raises(EngineError, match="does not exist"):
        docker_start("true", mounts=(bind(tmp_path / "missing", "/data"),))
    assert not (tmp_path / "missing").exists()
    assert docker_engine.leftovers(labels) == []


def overlay(root: Path) -> OverlayMount:
    layers = {name: root / name for name in ("lower", "upper", "work")}
    for layer in layers.values():
        layer.mkdir()
        layer.chmod(0o777)
    return OverlayMount(**layers, target="/workspace")


def test_writes_go_to_the_upper_layer_of_an_overlay(
    docker_engine: DockerEngine, docker_start: Starter, tmp_path: Path, labels: dict[str, str]
) -> None:
    mount = overlay(tmp_path)
    (mount.lower / "folder").mkdir()
    (mount.lower / "folder" / "file").write_text("below")
    for path in mount.lower.rglob("*"):
        path.chmod(0o777)
    task = "cat folder/file; echo above > folder/file; mv folder moved; echo new > new"
    container = docker_start("sh", "-c", task, workdir="/workspace", mounts=(mount,))
    status, stdout, stderr = finish(container)
    assert (status.exit_code, stdout) == (0, b"below"), stderr
    assert [path.name for path in mount.lower.rglob("*")] == ["folder", "file"]
    assert (mount.lower / "folder" / "file").read_text() == "below"
    assert (mount.upper / "moved" / "file").read_text() == "above\n"
    container.remove()
    assert docker_engine.leftovers(labels) == []


def test_read_only_overlay_refuses_writes(docker_run: Run, tmp_path: Path) -> None:
    mount = replace(overlay(tmp_path), read_only=True)
    status, _, stderr = docker_run(
        "sh", "-c", "ls /workspace && touch /workspace/x", mounts=(mount,)
    )
    assert status.exit_code != 0
    assert b"Read-only file system" in stderr
    assert list(mount.upper.iterdir()) == []


def test_volume_of_an_overlay_has_the_labels(
    docker_engine: DockerEngine, docker_start: Starter, tmp_path: Path, labels: dict[str, str]
) -> None:
    docker_start("sleep", "300", mounts=(overlay(tmp_path),))
    kinds = {leftover.kind for leftover in docker_engine.leftovers(labels)}
    assert kinds == {"container", "volume"}


def test_a_refused_start_leaves_no_volume(
    docker_engine: DockerEngine, docker_start: Starter, tmp_path: Path, labels: dict[str, str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
        with pytest.raises(PortTakenError):
            docker_start(
                "true", mounts=(overlay(tmp_path),), network=network,
                ports={8000: taken.getsockname()[1]},
            )  # fmt: skip
    assert [leftover.kind for leftover in docker_engine.leftovers(labels)] == ["network"]


def test_tmpfs_is_owned_by_the_user_bounded_and_executable(docker_run: Run) -> None:
    task = (
        "cp /bin/true /scratch/run && /scratch/run && echo runs; stat -c '%u %a' /scratch; "
        "head -c 3000000 /dev/zero > /scratch/big || echo full"
    )
    mounts = (TmpfsMount(target="/scratch", size=2 << 20, mode="700"),)
    _, stdout, _ = docker_run("sh", "-c", task, mounts=mounts)
    assert stdout.decode().splitlines() == ["runs", f"{USER} 700", "full"]


def test_container_without_network_has_only_loopback(docker_run: Run) -> None:
    code = "import os, json; print(json.dumps(os.listdir('/sys/class/net')))"
    assert json.loads(docker_run(*python(code))[1]) == ["lo"]


def test_containers_of_a_network_do_not_reach_each_other(
    docker_engine: DockerEngine, docker_start: Starter, labels: dict[str, str]
) -> None:
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    server = docker_start(*SERVE, network=network)
    next(server.logs())
    # This machine, which is also on the bridge, can reach the server.
    assert _answers(address(server.id))
    neighbour = docker_start(*python(CONNECT), address(server.id), network=network)
    status, _, stderr = finish(neighbour)
    assert status.exit_code == 1
    assert b"timed out" in stderr or b"unreachable" in stderr


def _answers(host: str) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, 8000), 2).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def test_published_port_is_bound_to_loopback_only(
    docker_engine: DockerEngine, docker_start: Starter, labels: dict[str, str]
) -> None:
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    ports = {8000: free_port()}
    server = docker_start(*SERVE, network=network, ports=ports)
    next(server.logs())
    assert _answers(address(server.id))
    with socket.create_connection(("127.0.0.1", ports[8000]), 60) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.0 200 OK"
    client = docker.APIClient(version="auto")
    published = client.inspect_container(server.id)["NetworkSettings"]["Ports"]["8000/tcp"]
    client.close()
    assert published == [{"HostIp": "127.0.0.1", "HostPort": str(ports[8000])}]


def test_an_unknown_runtime_starts_nothing(
    docker_engine: DockerEngine, docker_start: Starter, labels: dict[str, str]
) -> None:
    with pytest.raises(EngineError, match="no-such-runtime"):
        docker_start("true", runtime="no-such-runtime")
    assert docker_engine.leftovers(labels) == []
