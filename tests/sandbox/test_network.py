"""Tests of what sandboxes reach: this machine's own bridge addresses, and nothing beyond."""

import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import HOST_ROLE, MANAGED, ROLE, SANDBOX
from orchestrator.engine.interface.protocol import Leftover
from orchestrator.sandbox.batch import run_all
from orchestrator.sandbox.deadlines.reaper import overdue
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.models import NetworkKind, SandboxLimits, Submission, Template
from orchestrator.sandbox.network.shared_network import egress_for
from tests.support.bridge import bridge_gateway
from tests.support.errors import raises
from tests.support.live import eventually
from tests.support.local_engine import LocalEngine

SMALL = SandboxLimits(memory="64m", cpus=1, pids=32, grace=0.2)
TRY = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    with socket.socket() as one:
        one.settimeout(5)
        try:
            one.connect((host, int(port)))
            print("reached")
        except OSError as error:
            print(type(error).__name__)
"""
TALK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as one:
    while True:
        one.sendall(b"x")
        time.sleep(0.02)
"""


@dataclass
class Machine:
    """A server of this machine, at the address that containers see, and what it received."""

    server: socket.socket
    received: list[bytes] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.server.getsockname()[1])

    def serve(self) -> None:
        while True:
            try:
                taken, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.read, args=(taken,), daemon=True).start()

    def read(self, taken: socket.socket) -> None:
        with taken:
            data = taken.recv(4096)
            if data.startswith(b"GET "):
                taken.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                return
            while data:
                self.received.append(data)
                data = taken.recv(4096)

    def grows(self) -> bool:
        """Return whether more is received within half a second."""
        before = len(self.received)
        return not threading.Event().wait(0.5) and len(self.received) > before


@pytest.fixture
def machine() -> Iterator[Machine]:
    with socket.create_server((bridge_gateway(), 0)) as server:
        found = Machine(server)
        threading.Thread(target=found.serve, daemon=True).start()
        yield found
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.create_server((bridge_gateway(), 0)) as server:
        yield int(server.getsockname()[1])


def tried(box: Sandbox, *places: str) -> list[str]:
    return box.run(["python3", "-c", TRY, *places]).stdout.decode().split()


def networks_of(homes: Path, engine: DockerEngine) -> list[Leftover]:
    """Return all objects on the engine of the sandboxes and networks in a directory."""
    ids = {path.name for path in homes.iterdir() if path.is_dir()}
    return [left for left in engine.leftovers({MANAGED: "true"}) if left.labels.get(SANDBOX) in ids]


def is_empty(homes: Path) -> bool:
    return not any(path.is_dir() for path in homes.iterdir())


@pytest.mark.docker
def test_open_sandboxes_share_one_network_closed_to_this_machine_and_each_other(
    docker_engine: DockerEngine, homes: Path, machine: Machine, closed_port: int
) -> None:
    gateway = bridge_gateway()
    template = Template(
        limits=SMALL, network="open", allow=(f"host.docker.internal:{machine.port}",)
    )
    serve = [*("python3", "-m", "http.server", "-b", "0.0.0.0", "8000")]
    with (
        Sandbox.create(template, engine=docker_engine) as box,
        Sandbox.create(template, engine=docker_engine) as other,
        Sandbox.create(limits=SMALL, engine=docker_engine) as alone,
    ):
        found = networks_of(homes, docker_engine)
        assert sorted(left.labels[ROLE] for left in found) == [
            HOST_ROLE, "network", "sandbox", "sandbox", "sandbox",
        ]  # fmt: skip
        places = f"{gateway}:{machine.port}", f"{gateway}:{closed_port}", "127.0.0.1:1"
        assert tried(box, *places) == ["reached", *["ConnectionRefusedError"] * 2]
        assert tried(alone, *places) == ["OSError", "OSError", "ConnectionRefusedError"]
        other.start(serve)
        eventually(lambda: tried(other, "127.0.0.1:8000") == ["reached"], "the other one serves")
        address = other.run(["hostname", "-i"]).stdout.decode().strip()
        assert tried(box, f"{address}:8000") == ["ConnectionRefusedError"]
    assert is_empty(homes)
    ids = {left.id for left in found}
    assert not [left for left in docker_engine.leftovers({MANAGED: "true"}) if left.id in ids]


@pytest.mark.docker
def test_network_that_is_taken_away_carries_nothing_and_stays_away(
    docker_engine: DockerEngine, machine: Machine
) -> None:
    gateway = bridge_gateway()
    place, resolver = f"{gateway}:{machine.port}", "127.0.0.11:53"
    template = Template(limits=SMALL, network="open", allow=(place,))
    with (
        Sandbox.create(template, engine=docker_engine) as box,
        Sandbox.create(template, engine=docker_engine) as other,
    ):
        talking = box.start(["python3", "-c", TALK, gateway, str(machine.port)])
        eventually(machine.grows, "an open connection")
        assert tried(box, place, resolver) == ["reached", "reached"]
        # Any process that knows the sandbox can take its network away.
        Sandbox.connect(box.id, engine=docker_engine).network.set("none")
        # What arrived before may still be read.
        eventually(lambda: not machine.grows(), "the end of the connection")
        assert talking.wait(20).exit_code == 1
        assert tried(box, place, resolver) == ["OSError", "ConnectionRefusedError"]
        devices = box.run(["cat", "/proc/net/dev"]).stdout.decode().splitlines()
        assert [line.split(":")[0].strip() for line in devices[2:]] == ["lo"]
        assert box.network.kind == "none"
        box.network.set("none")
        with raises("sandbox.network-wider"):
            box.network.set("open")
        assert tried(other, place) == ["reached"]
        with raises("sandbox.network-wider"):
            other.network.set("allowlist")


@pytest.mark.docker
def test_allow_list_opens_its_hosts_until_it_is_taken_away(
    docker_engine: DockerEngine, homes: Path, machine: Machine, closed_port: int
) -> None:
    allow = (f"http://host.docker.internal:{machine.port}",)
    read = (
        "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read().decode())"
    )
    ask = ["python3", "-c", read, f"http://host.docker.internal:{machine.port}/"]
    with Sandbox.create(
        limits=SMALL, network="allowlist", allow=allow, engine=docker_engine
    ) as box:
        assert box.run(ask).stdout == b"hi\n"
        direct = [f"{bridge_gateway()}:{port}" for port in (machine.port, closed_port)]
        assert "reached" not in tried(box, *direct)
        found = networks_of(homes, docker_engine)
        box.network.set("none")
        assert box.run(ask).exit_code == 1
        # The loss of its gateway does not end the sandbox.
        assert not box._over.wait(2.5)
        assert box.run(["true"]).ok
    assert is_empty(homes)
    ids = {left.id for left in found}
    assert not [left for left in docker_engine.leftovers({MANAGED: "true"}) if left.id in ids]


@pytest.mark.docker
def test_submissions_share_a_network(
    docker_engine: DockerEngine, homes: Path, machine: Machine
) -> None:
    place = f"{bridge_gateway()}:{machine.port}"
    asked = [Submission(id=str(n), command=("python3", "-c", TRY, place)) for n in range(2)]
    template = Template(limits=SMALL, network="open", allow=(place,))
    results = run_all(asked, template=template, engine=docker_engine)
    first = next(results)
    roles = [left.labels[ROLE] for left in networks_of(homes, docker_engine)]
    assert (roles.count("network"), roles.count(HOST_ROLE)) == (1, 1)
    assert [first.stdout, *(result.stdout for result in results)] == [b"reached\n"] * 2
    assert is_empty(homes)


@pytest.mark.docker
def test_network_stays_for_sandboxes_of_a_dead_client_and_is_removed_after_them(
    docker_engine: DockerEngine, homes: Path, machine: Machine
) -> None:
    place = f"{bridge_gateway()}:{machine.port}"
    program = textwrap.dedent(f"""
        import os, signal
        from orchestrator.sandbox.live.box import Sandbox
        print(Sandbox.create(network="open", allow=("{place}",), ttl=200).id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    found = networks_of(homes, docker_engine)
    box = Sandbox.connect(done.stdout.decode().strip(), engine=docker_engine)
    try:
        assert list(overdue(homes)) == []
        assert tried(box, place, f"{bridge_gateway()}:1") == ["reached", "ConnectionRefusedError"]
    finally:
        box.kill()
    eventually(lambda: is_empty(homes), "the network is removed")
    ids = {left.id for left in found}
    assert len(ids) == 3
    assert not [left for left in docker_engine.leftovers({MANAGED: "true"}) if left.id in ids]


@pytest.mark.docker
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"network": "open", "runtime": "runsc"}, "runtime.unknown"),
        ({"network": "open", "allow": ("no such host",)}, "allow.unresolvable"),
        ({"network": "allowlist", "allow": ("@no-such-set",)}, "allow-set.unknown"),
    ],
)
def test_network_that_cannot_be_had_is_refused(
    docker_engine: DockerEngine, homes: Path, options: dict[str, object], key: str
) -> None:
    with raises(key):
        Sandbox.create(engine=docker_engine, **options)
    assert not homes.exists() or is_empty(homes)


@pytest.mark.fast
def test_list_of_hosts_goes_with_a_network() -> None:
    with pytest.raises(ValidationError, match="`network` is `none`"):
        Template(allow=("a.example",))
    with pytest.raises(ValidationError, match="`allow` is empty"):
        Template(network="allowlist")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("network", "features", "key"),
    [
        ("open", {"open_network": False}, "network.rootless"),
        ("allowlist", {"gateways": False}, "gateway.unsupported"),
        ("open", {"default_runtime": "runsc"}, "runtime.no-filter"),
    ],
)
def test_network_that_the_engine_cannot_close_is_refused(
    local_engine: LocalEngine, network: NetworkKind, features: dict[str, Any], key: str
) -> None:
    known = EngineFeatures(
        **{"overlay": True, "runtimes": ("runc",), "cpus": 1, "memory": 1, "version": "1",
           "gateways": True, **features}
    )  # fmt: skip
    with raises(key):
        allow = ("a.example",) if network == "allowlist" else ()
        egress_for(network, allow, engine=local_engine, features=known, runtime=None)
