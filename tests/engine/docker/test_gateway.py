"""The containers and the network of a gateway. Nothing here sends a packet to the outside."""

import secrets
import socket
from collections.abc import Mapping

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.container import DockerContainer
from orchestrator.engine.docker.machine_network import parse, this_machine
from orchestrator.engine.docker.networks import free_subnets
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import REPOSITORY, ROLE
from orchestrator.engine.interface.spec import Egress, TmpfsMount
from orchestrator.engine.probes.gateway_probe import gateway_problem
from orchestrator.network.gateway.allowed_host import AllowedHost
from orchestrator.network.gateway.dns import dns_configuration
from orchestrator.network.gateway.hosts import parse_host
from orchestrator.network.gateway.log import LogReader
from orchestrator.network.gateway.packet_filter import Rates, gateway_rules, worker_rules
from orchestrator.network.gateway.plan import GatewayPlan
from orchestrator.network.gateway.proxy import proxy_configuration
from tests.network.gateway.plans import make_plan
from tests.support.containers import Run, Starter, finish
from tests.support.errors import raises
from tests.support.live import eventually

pytestmark = pytest.mark.docker
SERVE = ("python3", "-m", "http.server", "8000")
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
RATES = Rates(open=10, per_second=5, burst=20)
ENTRIES = (
    "a.example", "*.b.example", "http://c.example:8080", "d.example:80", "xn--bcher-kva.example",
    "e.corp=10.0.0.0/8", "f.corp:8443=10.1.2.3", "host.docker.internal:9443",
    "http://host.docker.internal:11434",
)  # fmt: skip
CHECK = """
printf %s "$WORKER" | nft -c -f - && printf %s "$GATEWAY" | nft -c -f - && echo filters
printf %s "$NAMES" > /tmp/names && dnsmasq --test -C /tmp/names && echo names
printf %s "$PROXY" > /tmp/proxy && haproxy -c -f /tmp/proxy && echo proxy
"""


@pytest.mark.parametrize(
    "plan",
    [
        make_plan(*ENTRIES),
        make_plan("a.example", "http://c.example:8080", "e.corp=10.0.0.0/8", learn=True),
        make_plan("a.example:20010", published={443: 20010, 3000: 20011}),
        make_plan(*(f"h{n}.example=10.{n % 256}.0.0/16" for n in range(200)),
                  own=tuple(f"8.8.{n}.1" for n in range(100))),
    ],
    ids=["every kind", "learn", "ports", "many"],
)  # fmt: skip
def test_programs_accept_the_configurations(docker_run: Run, plan: GatewayPlan) -> None:
    env = {
        "WORKER": worker_rules(plan, RATES),
        "GATEWAY": gateway_rules(plan, RATES),
        "NAMES": dns_configuration(plan),
        "PROXY": proxy_configuration(plan),
    }
    mounts = (TmpfsMount(target="/tmp", size=4 << 20),)
    status, stdout, stderr = docker_run(
        "sh", "-c", CHECK, env=env, mounts=mounts, user="0:0", capabilities=("NET_ADMIN",)
    )
    assert status.exit_code == 0, stderr.decode()
    # The proxy warns that it cannot connect to the name server: there is no network here.
    assert {"filters", "names", "proxy"} <= set(stdout.decode().split()), stderr.decode()


@pytest.fixture
def network(
    docker_engine: DockerEngine,
    docker_start: Starter,  # noqa: ARG001  # removes objects with the labels
    labels: Mapping[str, str],
) -> str:
    """A network of a run."""
    return docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)


def confined(*entries: str) -> Egress:
    return Egress(image=BASE_IMAGE, hosts=tuple(map(parse_host, entries)))


def test_gateway_and_guard_have_no_more_than_they_need(
    client: docker.APIClient,
    docker_engine: DockerEngine,
    docker_start: Starter,
    labels: Mapping[str, str],
    network: str,
) -> None:
    egress = confined("a.example")
    worker = docker_start("sleep", "300", network=network, egress=egress, env={"TOKEN": "x"})
    assert isinstance(worker, DockerContainer)
    guard, gateway = (
        client.inspect_container(found["Id"])
        for role in ("guard", "gateway")
        for found in client.containers(
            filters={"label": [f"{ROLE}={role}", f"{REPOSITORY}={labels[REPOSITORY]}"]}
        )
    )
    added = (sorted(one["HostConfig"]["CapAdd"]) for one in (guard, gateway))
    assert list(added) == [["NET_ADMIN"], ["NET_ADMIN", "SETGID", "SETPCAP", "SETUID"]]
    for one in (guard, gateway):
        assert one["HostConfig"]["CapDrop"] == ["ALL"]
        assert not one["HostConfig"]["Privileged"]
        assert not any("TOKEN" in variable for variable in one["Config"]["Env"])
        assert not one["Mounts"]
    assert gateway["HostConfig"]["ReadonlyRootfs"]
    assert (gateway["HostConfig"]["Memory"], gateway["HostConfig"]["PidsLimit"]) == (128 << 20, 32)
    programs = docker_engine.enter(
        gateway["Id"], ("sh", "-c", "grep -sl '^Uid:.13' /proc/[0-9]*/status | xargs grep -h ^Cap")
    )
    said = b"".join(chunk.data for chunk in programs.output()).decode().split()
    assert set(said[1::2]) == {"0" * 16}
    assert said.count("CapBnd:") >= 2
    (inside,) = (
        one
        for one in map(client.inspect_network, gateway["NetworkSettings"]["Networks"])
        if one["Id"] != network
    )
    assert inside["Internal"]
    assert inside["Options"] == {"com.docker.network.bridge.inhibit_ipv4": "true"}
    assert set(inside["Containers"]) == {guard["Id"], gateway["Id"]}
    # This machine has no address in the network between guard and gateway.
    gateways = {pool.get("Gateway", "") for pool in inside["IPAM"]["Config"]}
    assert not gateways & set(this_machine("").addresses)
    again = docker_engine.adopt(worker.id)
    assert again is not None
    again.remove()
    left = [leftover.id for leftover in docker_engine.leftovers(labels)]
    assert left == [network]


def test_worker_has_the_gateway_as_its_only_name_server(
    docker_start: Starter, network: str
) -> None:
    task = (
        "cat /etc/resolv.conf; getent hosts a.example b.b.example; "
        "getent hosts other.example b.example localhost.example || echo unknown; "
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.11\", 53), 3)' 2>&1 "
        "| tail -n 1"
    )
    egress = confined("a.example", "*.b.example")
    container = docker_start("sh", "-c", task, network=network, egress=egress)
    lines = finish(container)[1].decode().splitlines()
    container.remove()
    server = lines[0].removeprefix("nameserver ")
    assert [line.split() for line in lines[1:3]] == [[server, "a.example"], [server, "b.b.example"]]
    assert lines[3] == "unknown"
    assert "OSError: [Errno 113] No route to host" in lines[4]


KILL = "kill -9 $(cat /proc/[0-9]*/stat | grep '(%s)' | cut -d' ' -f1)"
# The kernel chooses the process with the highest score when memory is used up.
FILL = (
    "echo 1000 > /proc/$(cat /proc/[0-9]*/stat | grep '(haproxy)' | cut -d' ' -f1)/oom_score_adj; "
    "tail /dev/zero"
)


@pytest.mark.variants("name server")
@pytest.mark.parametrize(
    ("role", "command", "why"),
    [
        ("gateway", None, "its gateway ended (exit code 137)"),
        ("guard", None, "the container that owns its network ended (exit code 137)"),
        ("gateway", KILL % "dnsmasq", "its gateway ended (its name server ended)"),
        ("gateway", KILL % "haproxy", "its gateway ended (its proxy ended)"),
        ("gateway", FILL, "its gateway ended (it needed more memory than its limit)"),
    ],
    ids=["gateway", "guard", "name server", "proxy", "memory"],
)
def test_container_knows_why_it_lost_its_network(
    client: docker.APIClient,
    docker_engine: DockerEngine,
    docker_start: Starter,
    labels: Mapping[str, str],
    network: str,
    role: str,
    command: str | None,
    why: str,
) -> None:
    holder = docker_start("sleep", "300", network=network, egress=confined("a.example"))
    worker = docker_start("sleep", "300", network_of=holder.id)
    assert (holder.lost_network(), worker.lost_network()) == (None, None)
    filters = {"label": [f"{ROLE}={role}", f"{REPOSITORY}={labels[REPOSITORY]}"]}
    (target,) = client.containers(filters=filters)
    if command is None:
        client.kill(target["Id"])
    else:
        inside = client.exec_create(target["Id"], ["sh", "-c", command], user="13:13")
        client.exec_start(inside["Id"])
    eventually(holder.lost_network, "the loss of the network")
    adopted = docker_engine.adopt(worker.id)
    assert adopted is not None
    found = [one.lost_network() for one in (holder, worker, adopted)]
    assert found == [why] * 3
    client.remove_container(target["Id"], force=True)
    again = docker_engine.adopt(holder.id)
    assert again is not None
    assert holder.lost_network() == f"{why.partition(' (')[0]} (another program removed it)"
    if role == "gateway":
        assert again.lost_network() == holder.lost_network()


@pytest.mark.extra
def test_network_outlives_a_container_that_another_process_finds(
    docker_engine: DockerEngine, docker_start: Starter, network: str
) -> None:
    holder = docker_start("sleep", "300", network=network, egress=confined("a.example"))
    worker = docker_start("sleep", "300", network_of=holder.id)
    adopted = docker_engine.adopt(worker.id)
    assert adopted is not None
    adopted.remove()
    assert docker_engine.adopt(worker.id) is None
    assert holder.lost_network() is None


def test_gateway_ends_by_itself_and_its_lines_end_with_it(
    docker_engine: DockerEngine, docker_start: Starter, network: str
) -> None:
    question = "getent hosts other.example; true"
    worker = docker_start("sh", "-c", question, network=network, egress=confined("a.example"))
    worker.wait(60)
    assert worker.lost_network() is None
    lines = worker.network_lines()
    assert lines is not None
    refused = next(line for line in lines if b"other.example is NXDOMAIN" in line)
    record = LogReader().read(refused)
    assert record is not None
    assert record.host == "other.example"
    adopted = docker_engine.adopt(worker.id)
    assert adopted is not None
    stored = adopted.network_lines()
    assert stored is not None
    worker.end_network()
    assert refused not in list(lines)
    # A gateway that cannot stop its proxy is still running, until it is removed.
    assert worker.lost_network() == "its gateway ended (exit code 0)"
    again = [line for line in stored if b"other.example is NXDOMAIN" in line]
    assert again[0].partition(b" ")[2] == refused.partition(b" ")[2]


CONNECT = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        print("reached", place)
    except OSError:
        print("held", place)
"""


@pytest.mark.extra
def test_published_port_leads_to_the_worker_and_not_out(
    client: docker.APIClient,
    docker_engine: DockerEngine,
    docker_start: Starter,
    labels: Mapping[str, str],
    network: str,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    worker = docker_start(
        *SERVE, network=network, egress=confined(), ports={8000: port}, env=UNBUFFERED
    )
    next(worker.logs())
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.0 200 OK"
    adopted = docker_engine.adopt(worker.id)
    assert adopted is not None
    assert worker.ports == adopted.ports == {8000: port}
    filters = {"label": [f"{ROLE}=gateway", f"{REPOSITORY}={labels[REPOSITORY]}"]}
    (gateway,) = client.containers(filters=filters)
    inspected = client.inspect_container(gateway["Id"])["NetworkSettings"]
    assert inspected["Ports"] == {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
    places = [f"{one['IPAddress']}:{port}" for one in inspected["Networks"].values()]
    places.append(f"{client.inspect_network(network)['IPAM']['Config'][0]['Gateway']}:{port}")
    assert len(places) == 3
    tried = docker_engine.enter(worker.id, ("python3", "-c", CONNECT, *places, "127.0.0.1:8000"))
    said = b"".join(chunk.data for chunk in tried.output()).decode().splitlines()
    assert said == [*(f"held {place}" for place in places), "reached 127.0.0.1:8000"]
    neighbour = docker_start("python3", "-c", CONNECT, *places, network=network)
    assert finish(neighbour)[1].decode().splitlines() == [f"held {place}" for place in places]


@pytest.mark.extra
def test_failed_gateway_leaves_nothing(
    docker_engine: DockerEngine, docker_start: Starter, labels: Mapping[str, str], network: str
) -> None:
    # The parser of entries accepts no such name, so it must be created directly.
    broken = AllowedHost(name="a.example\n  nonsense")
    with raises("firewall.failed"):
        docker_start("true", network=network, egress=Egress(image=BASE_IMAGE, hosts=(broken,)))
    assert [leftover.id for leftover in docker_engine.leftovers(labels)] == [network]


def test_subnets_overlap_with_no_route() -> None:
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    default = "eth0\t00000000\t010012C6\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    # A route to 198.18.0.0/15, as in /proc/net/route.
    taken = "eth0\t000012C6\t00000000\t0001\t0\t0\t0\t0000FEFF\t0\t0\t0\n"
    routed = parse("", "", head + default + taken, "").routed
    found = list(free_subnets((), routed))
    assert found
    assert {str(subnet).split(".")[0] for subnet in found} == {"10"}
    routed = parse("", "", head + default, "").routed
    assert str(next(free_subnets((), routed))).startswith(("198.18.", "198.19."))
    assert list(free_subnets(("0.0.0.0/0",), routed)) == []


def test_doctor_tests_a_gateway_and_leaves_nothing(
    docker_engine: DockerEngine, labels: Mapping[str, str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = labels[REPOSITORY]
    assert gateway_problem(docker_engine, here) is None
    assert docker_engine.leftovers({REPOSITORY: here}) == []
    monkeypatch.setattr(
        "orchestrator.engine.docker.gateway.dns_configuration", lambda _: "nonsense"
    )
    problem = gateway_problem(docker_engine, here)
    assert problem is not None
    assert "cannot set up the firewall of the worker's network" in problem
    assert docker_engine.leftovers({REPOSITORY: here}) == []


def test_machine_of_an_engine_elsewhere_is_never_taken_for_this_one(
    labels: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = DockerEngine()
    here = engine._machine(labels)
    monkeypatch.setattr("orchestrator.engine.docker.engine.this_machine", lambda _: None)
    engine.note_other_machine()
    asked = engine._machine(labels)
    engine.close()
    assert {*asked.addresses} & {*here.addresses}
