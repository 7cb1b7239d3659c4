"""Tests of the rules on the host's side, and of the limits on a worker's connections.

Every packet goes to this machine's own bridge addresses, where the test listens.
"""

import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import docker
import pytest

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker import DockerEngine, firewall, rules
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import Egress
from tests.support.bridge import bridge_gateway
from tests.support.containers import Starter, finish

pytestmark = pytest.mark.docker

_SO_RCVBUFFORCE = 33
"""An option of Linux that Python does not name: a buffer larger than the system's usual limit."""
TRY = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print("reached")
    except OSError:
        print("closed")
"""
FLOWS = """
import socket, sys
for _ in range(3000):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
        except OSError:
            pass
"""


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Return two ports of this machine that accept connections."""
    with socket.create_server(("0.0.0.0", 0)) as one, socket.create_server(("0.0.0.0", 0)) as other:
        yield one.getsockname()[1], other.getsockname()[1]


@pytest.fixture
def network(
    docker_engine: DockerEngine,
    docker_start: Starter,  # noqa: ARG001  # removes objects with the labels
    labels: Mapping[str, str],
) -> str:
    """Return the network of a run."""
    return docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)


def test_host_rules_block_the_host_without_worker_rules(
    client: docker.APIClient,
    docker_engine: DockerEngine,
    docker_start: Starter,
    labels: Mapping[str, str],
    network: str,
    ports: tuple[int, int],
) -> None:
    gateway = client.inspect_network(network)["IPAM"]["Config"][0]["Gateway"]
    closed, allowed = ports
    places = [
        f"{gateway}:{closed}",
        f"{bridge_gateway()}:{closed}",
        f"{bridge_gateway()}:{allowed}",
    ]

    def tried() -> list[str]:
        # Without a guard, no rule in the container's own network namespace blocks anything.
        container = docker_start("python3", "-c", TRY, *places, network=network)
        return finish(container)[1].decode().split()

    assert tried() == ["reached"] * 3
    # With gateways in the network, the helper filters no worker.
    egress = Egress(image=BASE_IMAGE, allowed=(("host.docker.internal", allowed),), hosts=())
    ours = {**labels, ROLE: "host"}
    docker_engine.close_host(f"orchestrator-test-{secrets.token_hex(4)}", network, egress, ours)
    assert tried() == ["closed", "closed", "reached"]
    (holder,) = docker_engine.leftovers(ours)
    found = client.inspect_container(holder.id)
    assert (found["HostConfig"]["CapAdd"], found["HostConfig"]["CapDrop"]) == (
        ["NET_ADMIN"],
        ["ALL"],
    )
    assert (found["HostConfig"]["Privileged"], found["Mounts"]) == (False, [])
    docker_engine.remove(holder)
    assert tried() == ["reached"] * 3


def inside(pid: int, *command: str, **rest: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program of this machine in the network namespace of a container."""
    entered = ("nsenter", f"--net=/proc/{pid}/ns/net", *command)
    return subprocess.run(entered, check=True, capture_output=True, text=True, timeout=60, **rest)


@contextmanager
def listening(pid: int, port: int) -> Iterator[None]:
    """Accept connections on every address of a container's network namespace."""
    code = f"import socket; s = socket.create_server(('', {port})); print('up', flush=True)\n"
    code += "while True: s.accept()[0].close()"
    command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@pytest.mark.extra
def test_later_address_of_the_host_is_blocked(
    client: docker.APIClient, docker_start: Starter
) -> None:
    """The test's host is a container without a network: no packet can leave it."""
    table, bridge = "orchestrator_test", "br-test"
    gateway, later, port = "198.51.100.1", "203.0.113.7", 8099
    nothing = Egress(image=BASE_IMAGE, allowed=())
    text = rules.host_rules(table, bridge, nothing, MachineNetwork(gateway=gateway))
    described = firewall._host_spec(
        "-", BASE_IMAGE, {"RULES": text, "TABLE_NAME": table}, {}, workers=False
    )
    machine = docker_start(
        *described.command, env=described.env, user="0:0", capabilities=("NET_ADMIN",)
    )
    worker = docker_start("sleep", "600")
    assert next(machine.logs()).data == b"closed\n"
    host, other = (client.inspect_container(one.id)["State"]["Pid"] for one in (machine, worker))
    for command in (
        f"link add {bridge} type bridge",
        f"link add one type veth peer name two netns {other}",
        f"link set one master {bridge} up",
        f"addr add {gateway}/24 dev {bridge}",
        f"link set {bridge} up",
        "link set lo up",
    ):
        inside(host, "ip", *command.split())
    for command in (
        "addr add 198.51.100.2/24 dev two", "link set two up", f"route add default via {gateway}"
    ):  # fmt: skip
        inside(other, "ip", *command.split())

    def tried() -> list[str]:
        places = (f"{gateway}:{port}", f"{later}:{port}")
        return inside(other, sys.executable, "-c", TRY, *places).stdout.split()

    with listening(host, port):
        assert tried() == ["closed", "closed"]
        inside(host, "ip", "addr", "add", f"{later}/32", "dev", "lo")
        assert tried() == ["closed", "closed"]
        machine.kill("SIGKILL")
        assert tried() == ["reached", "reached"]


def test_invalid_rules_leave_nothing_behind(
    docker_engine: DockerEngine, labels: Mapping[str, str], network: str
) -> None:
    nonsense = Egress(image=BASE_IMAGE, allowed=(("10.0.0.1", 10**9),))
    name = f"orchestrator-test-{secrets.token_hex(4)}"
    with pytest.raises(EngineError):
        docker_engine.close_host(name, network, nonsense, labels)
    assert [leftover.kind for leftover in docker_engine.leftovers(labels)] == ["network"]


def test_connections_of_a_worker_are_limited(docker_start: Starter, network: str) -> None:
    with heard_flows(bridge_gateway()) as (port, heard):
        container = docker_start(
            "python3", "-c", FLOWS, bridge_gateway(), str(port), network=network,
            egress=Egress(image=BASE_IMAGE, allowed=((bridge_gateway(), None),)),
        )  # fmt: skip
        finish(container)
    assert 500 < len(heard) <= 1001


INSIDE = """
import socket, time
def entries():
    with open("/proc/sys/net/netfilter/nf_conntrack_count") as file:
        return int(file.read())
began = entries()
for family, place in ((2, "127.0.0.1"), (10, "::1")):
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        for port in range(1, 6000):
            try:
                one.sendto(b"x", (place, port))
            except OSError:
                pass
inside = entries()
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
# The resolver answers this itself: it asks nobody else about the container's own name.
name = socket.gethostname().encode()
question = b"\\x12\\x34\\x01" + bytes(2) + b"\\x01" + bytes(6)
question += bytes([len(name)]) + name + bytes(2) + b"\\x01" + bytes(1) + b"\\x01"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.settimeout(30)
    one.connect(("127.0.0.11", 53))
    one.send(question)
    one.recv(600)
    sent = 0
    for _ in range(5000):
        try:
            sent += one.send(question) > 0
        except OSError:
            pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("127.0.0.11", 0))
    for port in range(1, 10000):
        try:
            one.sendto(b"x", ("127.0.0.1", port))
        except OSError:
            pass
print(began, inside, sent, entries())
"""


@pytest.mark.extra
def test_local_flows_use_few_entries_of_the_hosts_table(
    docker_start: Starter, network: str
) -> None:
    """Limits the kernel's table of flows, and the work of the engine's resolver."""
    egress = Egress(image=BASE_IMAGE)
    container = docker_start("python3", "-c", INSIDE, network=network, egress=egress)
    _, said, error = finish(container)
    assert said, error
    began, inside, sent, entries = map(int, said.split())
    assert inside <= began + 10
    assert 900 < sent < 2500
    assert entries <= rules.LOCAL_FLOWS + 100


@contextmanager
def heard_flows(address: str) -> Iterator[tuple[int, set[tuple[str, int]]]]:
    """Listen at an address of this machine; return the port, and the senders of datagrams."""
    heard: set[tuple[str, int]] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        # Room for all packets, so that none is lost while the thread below has to wait.
        server.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        server.bind((address, 0))
        server.settimeout(0.5)
        ended = threading.Event()

        def listen() -> None:
            while True:
                with suppress(TimeoutError):
                    heard.add(server.recvfrom(1)[1])
                    continue
                if ended.is_set():
                    return

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield server.getsockname()[1], heard
        finally:
            ended.set()
            thread.join()
