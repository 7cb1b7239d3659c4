"""Tests of workers on an open network, which the run's helper filters without guards.

Every packet goes to this machine's own bridge addresses, or to network namespaces of the test.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import docker
import pytest

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker import (
    DockerEngine,
    firewall,
    machine_network,
    network_filter,
    networks,
    rules,
)
from orchestrator.engine.docker.container import DockerContainer
from orchestrator.engine.docker.counters import control_groups
from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.docker.network_filter import Helper, NetworkFilter
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.interface.spec import BrokerLink, Egress, TmpfsMount
from tests.engine.docker.test_firewall import FLOWS, TRY, heard_flows, inside, listening
from tests.support.bridge import bridge_gateway
from tests.support.containers import Starter, finish
from tests.support.errors import raises
from tests.support.live import eventually

pytestmark = pytest.mark.docker

_OPEN = Egress(image=BASE_IMAGE)
_HURRY = """
import socket, sys
places = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in sys.argv[1:])]
print("started", flush=True)
for _ in range(200):
    for place in places:
        with socket.socket() as one:
            one.settimeout(0.02)
            one.connect_ex(place)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            try:
                one.sendto(b"x", place)
            except OSError:
                pass
"""


@pytest.fixture
def network(
    docker_engine: DockerEngine,
    docker_start: Starter,  # noqa: ARG001  # removes objects with the labels
    labels: Mapping[str, str],
) -> str:
    """Return a network with a helper that filters its workers."""
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    close(docker_engine, network, labels)
    return network


def close(
    engine: DockerEngine, network: str, labels: Mapping[str, str], egress: Egress = _OPEN
) -> None:
    name = f"orchestrator-test-{secrets.token_hex(4)}"
    engine.close_host(name, network, egress, {**labels, ROLE: "host"})


def helper_of(engine: DockerEngine, network: str) -> Helper:
    found = engine._helper(network)
    assert found is not None
    return found


@pytest.fixture
def helper(docker_engine: DockerEngine, labels: Mapping[str, str], network: str) -> str:  # noqa: ARG001
    """Return the id of the helper's container."""
    (found,) = docker_engine.leftovers({**labels, ROLE: "host"})
    return found.id


@pytest.fixture
def host_port() -> Iterator[socket.socket]:
    """Return a socket that listens on every address of this machine, and accepts nothing."""
    with socket.create_server(("0.0.0.0", 0)) as server:
        server.setblocking(False)
        yield server


def machine(client: docker.APIClient, network: str) -> str:
    return str(client.inspect_network(network)["IPAM"]["Config"][0]["Gateway"])


def kill(client: docker.APIClient, container: str, number: signal.Signals) -> None:
    os.kill(client.inspect_container(container)["State"]["Pid"], number)


def reached(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def refused(container: Container) -> list[bytes]:
    lines = container.network_lines()
    container.end_network()
    assert lines is not None
    return list(lines)


def test_worker_has_no_guard_and_is_filtered(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter,
    labels: Mapping[str, str], network: str, helper: str, host_port: socket.socket,
) -> None:  # fmt: skip
    port = host_port.getsockname()[1]
    places = [f"{address}:{port}" for address in (machine(client, network), bridge_gateway())]
    worker = docker_start("python3", "-c", TRY, *places, network=network, egress=_OPEN)
    assert finish(worker)[1].decode().split() == ["closed", "closed"]
    assert not reached(host_port)
    said = b"".join(refused(worker)).decode()
    assert said.count('"refused": "address"') == 2
    assert all(f'"host": "{place.partition(":")[0]}", "port": {port}' in said for place in places)
    others = {left.id for left in docker_engine.leftovers(labels)} - {worker.id, helper, network}
    assert others == set()
    found = client.inspect_container(helper)
    given = found["HostConfig"]
    assert (given["CapAdd"], given["CapDrop"]) == (
        ["NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"],
        ["ALL"],
    )
    mounts = [(one["Source"], one["Destination"], one["RW"]) for one in found["Mounts"]]
    assert (given["Privileged"], given["PidMode"], mounts) == (
        False, "", [("/proc", "/machine", False)],
    )  # fmt: skip


@pytest.mark.variants("True")
@pytest.mark.parametrize("early", [True, False])
def test_first_packets_are_filtered(
    client: docker.APIClient, docker_start: Starter, network: str, host_port: socket.socket,
    monkeypatch: pytest.MonkeyPatch, *, early: bool,
) -> None:  # fmt: skip
    """Without early rules, those on the host filter what a worker sends in its first moments."""
    if not early:
        monkeypatch.setattr(NetworkFilter, "apply_early", lambda *_: None)
    gateway, port = machine(client, network), host_port.getsockname()[1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.setblocking(False)
        datagrams.bind(("0.0.0.0", port))
        worker = docker_start(
            "python3", "-c", _HURRY, f"{gateway}:{port}", network=network, egress=_OPEN
        )
        assert finish(worker)[0].exit_code == 0
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)
    assert not reached(host_port)


def test_rules_are_set_before_the_first_instruction(
    docker_start: Starter, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check after the start is left out: what was refused was refused by the early rules."""
    monkeypatch.setattr(DockerContainer, "_confirm_filter", lambda *_: None)
    worker = docker_start("python3", "-c", TRY, "10.255.255.1:1234", network=network, egress=_OPEN)
    finish(worker)
    (line,) = refused(worker)
    assert b'"host": "10.255.255.1", "port": 1234' in line


def test_host_limits_the_flows_of_each_container(
    docker_engine: DockerEngine, docker_start: Starter, labels: Mapping[str, str]
) -> None:
    """The containers have no rules of their own, as in the first moments of a worker."""
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    allowed = Egress(image=BASE_IMAGE, allowed=((bridge_gateway(), None),))
    close(docker_engine, network, labels, allowed)
    with heard_flows(bridge_gateway()) as (port, heard):
        command = ("python3", "-c", FLOWS, bridge_gateway(), str(port))
        for one in [docker_start(*command, network=network) for _ in range(2)]:
            finish(one)
    flows = Counter(address for address, _ in heard)
    assert len(flows) == 2
    assert all(500 < number <= rules.MOST_FLOWS + 1 for number in flows.values())


def test_rules_stay_when_the_helper_dies(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter,
    network: str, helper: str, host_port: socket.socket,
) -> None:  # fmt: skip
    """The next worker gets a guard, because the helper is gone."""
    place = f"{machine(client, network)}:{host_port.getsockname()[1]}"
    wait = ("sh", "-c", 'until test -e /tmp/go; do sleep 0.05; done; exec "$@"', "-")
    tries = ("python3", "-c", TRY, place)
    scratch = (TmpfsMount(target="/tmp", size=1 << 20),)  # the container's own
    worker = docker_start(*wait, *tries, network=network, egress=_OPEN, mounts=scratch)
    unfiltered = docker_start(*tries, network=network)
    assert finish(unfiltered)[1] == b"closed\n"
    kill(client, helper, signal.SIGKILL)
    eventually(lambda: not helper_of(docker_engine, network).works(), "the helper's end")
    unfiltered = docker_start(*tries, network=network)
    assert finish(unfiltered)[1] == b"reached\n"
    assert reached(host_port)
    docker_engine.enter(worker.id, ("touch", "/tmp/go")).wait()
    assert finish(worker)[1] == b"closed\n"
    assert not reached(host_port)
    following = docker_start(*tries, network=network, egress=_OPEN)
    assert isinstance(following, DockerContainer)
    assert following.guard is not None
    assert finish(following)[1] == b"closed\n"


def test_helper_outlives_the_process_that_started_it(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter, network: str,
    host_port: socket.socket,
) -> None:  # fmt: skip
    helper_of(docker_engine, network).close()
    place = f"{machine(client, network)}:{host_port.getsockname()[1]}"
    assert finish(docker_start("python3", "-c", TRY, place, network=network))[1] == b"closed\n"


@pytest.mark.extra
def test_helper_of_dead_process_ends_after_the_last_worker(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter,
    labels: Mapping[str, str], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(network_filter, "ALONE", 1.0)
    network = request.getfixturevalue("network")
    (helper,) = docker_engine.leftovers({**labels, ROLE: "host"})
    # A helper that is told that its process lives does not end, although there is no worker.
    time.sleep(2.5)
    worker = docker_start("sleep", "3", network=network)
    helper_of(docker_engine, network).close()
    finish(worker)
    client.wait(helper.id, timeout=60)
    ends = [client.inspect_container(one)["State"]["FinishedAt"] for one in (worker.id, helper.id)]
    assert ends == sorted(ends)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_worker_does_not_start_without_an_answer_of_the_helper(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter,
    labels: Mapping[str, str], network: str, helper: str,
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals,
) -> None:  # fmt: skip
    monkeypatch.setattr(network_filter, "_PATIENCE", 1.0)
    waiting = docker_engine.create(docker_start.spec("sleep", "60", network=network, egress=_OPEN))
    if number == signal.SIGKILL:
        kill(client, helper, number)
    else:
        client.pause(helper)
    with raises("firewall.failed"):
        waiting.start()
    kinds = {left.id for left in docker_engine.leftovers(labels)}
    assert kinds == {network, helper}
    assert not helper_of(docker_engine, network).works()
    if number == signal.SIGSTOP:
        client.unpause(helper)


def test_worker_that_ends_before_its_rules_are_set_has_a_result(
    docker_start: Starter, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NetworkFilter, "apply_early", lambda *_: None)
    start = DockerContainer._start

    def slowly(container: DockerContainer) -> None:
        start(container)
        eventually(lambda: container.state().ended_at is not None, "the container's end")

    monkeypatch.setattr(DockerContainer, "_start", slowly)
    worker = docker_start("sh", "-c", "echo done; exit 7", network=network, egress=_OPEN)
    status, said, _ = finish(worker)
    assert (status.exit_code, said) == (7, b"done\n")
    assert refused(worker) == []


@pytest.mark.extra
def test_another_process_starts_a_created_container_with_its_rules(
    docker_engine: DockerEngine, docker_start: Starter, labels: Mapping[str, str], network: str,
    helper: str,
) -> None:  # fmt: skip
    allowed = Egress(image=BASE_IMAGE, allowed=(("10.255.255.2", 1234),))
    command = ("python3", "-c", TRY, "10.255.255.1:1234")
    first, second = (
        docker_engine.create(docker_start.spec(*command, network=network, egress=allowed))
        for _ in range(2)
    )
    docker_engine.remove(next(x for x in docker_engine.leftovers(labels) if x.id == helper))
    other = DockerEngine()
    try:
        found = other.adopt(first.id)
        assert found is not None
        with raises("firewall.failed"):
            found.start()
        assert other.adopt(first.id) is None
        close(other, network, labels)
        found = other.adopt(second.id)
        assert isinstance(found, DockerContainer)
        assert found.filter is not None
        assert found.filter.allowed == allowed.allowed
        found.start()
        found.wait(60)
        (line,) = refused(found)
        assert b'"host": "10.255.255.1", "port": 1234' in line
    finally:
        other.close()


@pytest.mark.extra
def test_next_helper_keeps_the_rules_of_a_running_worker(
    docker_engine: DockerEngine, docker_start: Starter, labels: Mapping[str, str], network: str,
    helper: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    command = f"{TRY}\nimport time; time.sleep(60)"
    worker = docker_start(
        "python3", "-uc", command, "10.255.255.1:1234", network=network, egress=_OPEN
    )
    next(worker.logs())
    docker_engine.remove(next(x for x in docker_engine.leftovers(labels) if x.id == helper))
    other = DockerEngine()
    try:
        close(other, network, labels)
        found = other.adopt(worker.id)
        assert found is not None
        known, confine = Event(), helper_of(other, network).confine

        def confined(*arguments: Any) -> bool:
            found = confine(*arguments)
            known.set()
            return found

        monkeypatch.setattr(helper_of(other, network), "confine", confined)
        with ThreadPoolExecutor() as pool:
            reading = pool.submit(lambda: list(found.network_lines() or ()))
            assert known.wait(60)
            found.kill("SIGKILL")
            found.wait(60)
            found.end_network()
            (line,) = reading.result(60)
        assert b'"host": "10.255.255.1", "port": 1234' in line
    finally:
        other.close()


def test_host_is_closed_before_the_network_exists(
    docker_engine: DockerEngine, docker_start: Starter, labels: Mapping[str, str],
    client: docker.APIClient, host_port: socket.socket,
) -> None:  # fmt: skip
    name = f"orchestrator-test-{secrets.token_hex(4)}"
    close(docker_engine, name, labels)
    network = docker_engine.create_network(name, labels)
    place = f"{machine(client, network)}:{host_port.getsockname()[1]}"
    unfiltered = docker_start("python3", "-c", TRY, place, network=network)
    assert finish(unfiltered)[1] == b"closed\n"
    worker = docker_start("python3", "-c", TRY, place, network=network, egress=_OPEN)
    assert isinstance(worker, DockerContainer)
    assert worker.guard is None
    assert finish(worker)[1] == b"closed\n"
    assert not reached(host_port)


@pytest.mark.parametrize("taken", ["bridge", "name"])
def test_network_of_another_program_is_not_used(
    docker_engine: DockerEngine, labels: Mapping[str, str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, network: str, taken: str,
) -> None:  # fmt: skip
    """The engine itself would put workers on an existing bridge, beside what is connected to it."""
    name = f"orchestrator-test-{secrets.token_hex(4)}"
    if taken == "bridge":
        monkeypatch.setattr(machine_network, "_INTERFACES", tmp_path)
        (tmp_path / networks.bridge_of(name)).mkdir()
    else:
        name = docker_engine._client.inspect_network(network)["Name"]
        # Without this, the engine refuses the second bridge of the same name.
        monkeypatch.setattr(networks, "bridge_of", lambda _: f"br-{secrets.token_hex(6)}")
    with pytest.raises(EngineError, match="exists"):
        docker_engine.create_network(name, labels)
    assert [x.id for x in docker_engine.leftovers(labels) if x.kind == "network"] == [network]


@pytest.mark.variants("True")
@pytest.mark.parametrize("helped", [True, False])
def test_next_process_sets_the_rules_that_a_running_worker_lacks(
    docker_engine: DockerEngine, docker_start: Starter, labels: Mapping[str, str], network: str,
    helper: str, monkeypatch: pytest.MonkeyPatch, *, helped: bool,
) -> None:  # fmt: skip
    """The first process is killed between the worker's start and its rules."""
    wait = ("sh", "-c", 'until test -e /tmp/go; do sleep 0.05; done; exec "$@"', "-")
    command = (*wait, "python3", "-c", TRY, "10.255.255.1:1234")
    scratch = (TmpfsMount(target="/tmp", size=1 << 20),)  # the container's own
    with monkeypatch.context() as killed:
        killed.setattr(NetworkFilter, "apply_early", lambda *_: None)
        killed.setattr(DockerContainer, "_confirm_filter", lambda *_: None)
        worker = docker_start(*command, network=network, egress=_OPEN, mounts=scratch)
    docker_engine.remove(next(x for x in docker_engine.leftovers(labels) if x.id == helper))
    other = DockerEngine()
    try:
        if helped:
            close(other, network, labels)
        found = other.adopt(worker.id)
        assert found is not None
        if not helped:
            with raises("firewall.failed"):
                found.start()
            assert other.adopt(worker.id) is None
            return
        found.start()
        other.enter(worker.id, ("touch", "/tmp/go")).wait()
        found.wait(60)
        (line,) = refused(found)
        assert b'"host": "10.255.255.1", "port": 1234' in line
    finally:
        other.close()


def client_pid(engine: DockerEngine, container: str) -> int:
    return int(engine._client.inspect_container(container)["State"]["Pid"])


def test_helper_enters_only_the_named_container(
    docker_engine: DockerEngine, docker_start: Starter, network: str
) -> None:
    """A process of the host, of another container, and one of the host in the right group."""
    worker, other = (docker_start("sleep", "60", network="none") for _ in range(2))
    helper = helper_of(docker_engine, network)
    nonsense = "create table inet orchestrator_test_nonsense { flags owner; }"
    strangers = (os.getpid(), client_pid(docker_engine, other.id), 2**22 + 1)
    assert [helper.confine(worker.id, pid, nonsense) for pid in strangers] == [False] * 3
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            listed = Path(f"/proc/{client_pid(docker_engine, worker.id)}/cgroup").read_text()
            group = next(iter(control_groups(listed, worker.id).values()))
            (group / "cgroup.procs").write_text(str(process.pid))
            assert helper.confine(worker.id, process.pid, nonsense) is False
        finally:
            process.kill()
    assert helper.confine(worker.id, client_pid(docker_engine, worker.id), nonsense)


KEEP_TRYING = """
import socket, sys, time
host, _, port = sys.argv[1].rpartition(":")
while True:
    begun = time.monotonic()
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print("reached", flush=True)
    except OSError:
        print(begun, flush=True)
    time.sleep(0.05)
"""


@pytest.mark.extra
@pytest.mark.parametrize("number", [6, pytest.param(30, marks=pytest.mark.extra)])
def test_many_workers_at_once_have_rules_of_their_own(
    docker_start: Starter, network: str, number: int
) -> None:
    def run(port: int) -> list[bytes]:
        place = f"10.255.255.1:{port}"
        worker = docker_start("python3", "-c", KEEP_TRYING, place, network=network, egress=_OPEN)
        # Before, the host's rules may have refused the connections, which are not listed.
        own_rules = time.monotonic()
        said = b""
        for chunk in worker.logs():
            said += chunk.data
            *lines, _ = said.split(b"\n")
            assert b"reached" not in lines
            if lines and float(lines[-1]) > own_rules:
                break
        worker.kill("SIGKILL")
        return refused(worker)

    ports = range(5000, 5000 + number)
    with ThreadPoolExecutor(number) as pool:
        for port, lines in zip(ports, pool.map(run, ports), strict=True):
            assert len(lines) == 1
            assert f'"port": {port},'.encode() in lines[0]


def test_gateways_brokers_and_ports_need_a_guard(
    docker_engine: DockerEngine, docker_start: Starter, network: str
) -> None:
    link = BrokerLink(network="other", address="198.18.0.2", broker="198.18.0.3")

    def filtered(egress: Egress = _OPEN, **rest: Any) -> bool:
        spec = docker_start.spec("true", network=network, egress=egress, **rest)
        return docker_engine._filtering_helper(spec, egress) is not None

    assert filtered()
    assert not filtered(Egress(image=BASE_IMAGE, hosts=()))
    assert not filtered(link=link)
    assert not filtered(ports={80: 20080})


def test_host_rules_close_other_networks(client: docker.APIClient, docker_start: Starter) -> None:
    """The test's host, its worker and its other network are containers without a network."""
    bridge, gateway = "br-test", "198.51.100.1"
    text = rules.host_rules(
        "orchestrator_test", bridge, _OPEN, MachineNetwork(gateway=gateway), workers=True
    )
    environment = {"RULES": text, "TABLE_NAME": "orchestrator_test"}
    described = firewall._host_spec("-", BASE_IMAGE, environment, {}, workers=False)
    machine = docker_start(
        *described.command, env=environment, user="0:0", capabilities=("NET_ADMIN",)
    )
    worker, other = (docker_start("sleep", "600") for _ in range(2))
    assert next(machine.logs()).data == b"closed\n"
    host, inner, outer = (
        client.inspect_container(one.id)["State"]["Pid"] for one in (machine, worker, other)
    )
    public, closed = "192.175.48.7", ("10.9.0.2", "169.254.169.254", "203.0.113.5")
    for pid, commands in (
        (host, (
            f"link add {bridge} type bridge", f"link add one type veth peer name two netns {inner}",
            f"link set one master {bridge} up", f"addr add {gateway}/24 dev {bridge}",
            f"link set {bridge} up", f"link add lan type veth peer name out netns {outer}",
            "addr add 10.9.0.1/24 dev lan", "link set lan up",
        )),
        (inner, (
            "addr add 198.51.100.2/24 dev two", "link set two up",
            f"route add default via {gateway}",
        )),
        (outer, (
            "link set lo up", "link set out up", "addr add 10.9.0.2/24 dev out",
            *(f"addr add {address}/32 dev lo" for address in (public, *closed[1:])),
            "route add default via 10.9.0.1",
        )),
        (host, tuple(f"route add {address} via 10.9.0.2" for address in (public, *closed[1:]))),
    ):  # fmt: skip
        for command in commands:
            inside(pid, "ip", *command.split())
    inside(host, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")

    def tried() -> list[str]:
        places = (f"{address}:8099" for address in (public, *closed))
        return inside(inner, sys.executable, "-c", TRY, *places).stdout.split()

    with listening(outer, 8099):
        assert tried() == ["reached", *["closed"] * 3]
        machine.kill("SIGKILL")
