"""Tests of the destinations that a worker on the `open` network reaches.

Every target is a listener of the test: on loopback, on the machine's bridge addresses, in a sibling
worker.
"""

import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from orchestrator.engine.docker.machine_network import this_machine
from orchestrator.engine.interface.labels import REPOSITORY, ROLE
from tests.support.bridge import bridge_gateway
from tests.support.cli import orchestrator, start
from tests.support.daemon import inside, ours, touch_in_workers
from tests.support.live import PATIENCE, eventually

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell", "--json", "--timeout-per-worker", "200")
TRY = """cat > /tmp/try.py <<'P'
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        print(place, "reached")
    except OSError as error:
        print(place, "closed")
P
"""

GATEWAY = r"""GW=$(python3 -c "
import socket, struct
routes = [line.split() for line in open('/proc/net/route')]
gateway = next(r[2] for r in routes if r[1] == '00000000')
print(socket.inet_ntoa(struct.pack('<L', int(gateway, 16))))
")"""


class Quiet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host_port() -> Iterator[int]:
    """Return the port of a server of the machine that listens on all addresses."""
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def machine_addresses() -> list[str]:
    """Return the machine's own IPv4 addresses without loopback."""
    return list(this_machine("").addresses)


def log_of(result: dict) -> str:
    return (Path(result["log"]) / "stdout.log").read_text()


def test_worker_does_not_reach_the_machine(repo: Path, host_port: int) -> None:
    places = [f"{address}:{host_port}" for address in machine_addresses()]
    assert f"{bridge_gateway()}:{host_port}" in places
    # The gateway of the worker's network is only known inside the container.
    task = f"{TRY}{GATEWAY}\npython3 /tmp/try.py $GW:{host_port} " + " ".join(
        [f"host.docker.internal:{host_port}", *places]
    )
    done = orchestrator(*SHELL, task, "--workers", "1", cwd=repo)
    lines = log_of(done.results[1]).splitlines()
    assert len(lines) == len(places) + 2, done.stderr
    assert [line for line in lines if not line.endswith("closed")] == []


@pytest.mark.extra
def test_only_allowed_destinations_are_reached(repo: Path, host_port: int) -> None:
    task = (
        TRY + f"python3 /tmp/try.py host.docker.internal:{host_port} {bridge_gateway()}:{host_port}"
    )
    by_name = orchestrator(
        *SHELL, task, "--workers", "1", "--allow", f"host.docker.internal:{host_port}", cwd=repo
    )
    assert log_of(by_name.results[1]).count("reached") == 2
    other_port = orchestrator(
        *SHELL, task, "--workers", "1", "--allow", f"{bridge_gateway()}:1",
        # Not a variable of a model's API, so its host is not allowed.
        "--env", f"DATABASE_URL=http://{bridge_gateway()}:{host_port}", cwd=repo,
    )  # fmt: skip
    assert "reached" not in log_of(other_port.results[2])
    assert log_of(other_port.results[2]).count("closed") == 2
    base_url = f"http://{bridge_gateway()}:{host_port}/v1"
    implied = orchestrator(*SHELL, task, "--workers", "1", "--api-base", base_url, cwd=repo)
    assert log_of(implied.results[3]).count("reached") == 2


def serving_workers(client: docker.APIClient, repo: Path) -> list[str]:
    """Return the running workers whose own server answers."""
    labels = [f"{REPOSITORY}={repo / '.git'}", f"{ROLE}=worker"]
    running = [str(one["Id"]) for one in client.containers(filters={"label": labels})]
    answer = "127.0.0.1:3000 reached"
    return [one for one in running if answer in attempts(client, one, "127.0.0.1:3000")]


def attempts(client: docker.APIClient, worker: str, *places: str) -> list[str]:
    """Try to connect from a worker, and return a line for each place."""
    return inside(client, worker, "python3", "/tmp/try.py", *places).splitlines()


def test_workers_do_not_reach_each_other(repo: Path, client: docker.APIClient) -> None:
    serve = (
        f"{TRY}python3 -m http.server 3000 >/dev/null 2>&1 & "
        "until [ -e /tmp/go ]; do sleep 0.1; done"
    )
    process = start(
        *SHELL, serve, "--workers", "3", cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: len(serving_workers(client, repo)) == 3, "three servers")
        own = {
            one: f"{inside(client, one, 'hostname', '-i').split()[0]}:3000"
            for one in serving_workers(client, repo)
        }
        places = sorted(set(own.values()))
        assert len(places) == 3
        for worker, mine in own.items():
            assert attempts(client, worker, *places) == [
                f"{place} {'reached' if place == mine else 'closed'}" for place in places
            ]
        assert len(serving_workers(client, repo)) == 3
    finally:
        touch_in_workers(client, repo, "/tmp/go")
        code = process.wait(timeout=PATIENCE)
    assert code == 0
    assert ours(client, repo) == []


@pytest.mark.extra
def test_rules_cannot_be_changed_from_inside(repo: Path) -> None:
    done = orchestrator(*SHELL, "nft flush ruleset; nft list ruleset; echo $?", "--workers", "1",
                        cwd=repo)  # fmt: skip
    assert log_of(done.results[1]).strip().endswith("1")
    assert "Operation not permitted" in (Path(done.results[1]["log"]) / "stderr.log").read_text()


@pytest.mark.parametrize("wish", ["no such host", "host:99999", "-x", "[::1]:80"])
def test_invalid_destination_is_an_error(repo: Path, wish: str) -> None:
    done = orchestrator(*SHELL, "true", "--allow", wish, cwd=repo)
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr
    assert not list(repo.glob(".architect-parallel-*"))
