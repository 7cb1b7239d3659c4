"""Tests of a database and a web server per worker, on a real daemon."""

import json
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.machine_network import this_machine
from orchestrator.engine.interface.labels import REPOSITORY, ROLE, WORKER
from orchestrator.state.run_directory import RunDirectory
from tests.support.cli import orchestrator, start
from tests.support.daemon import inside, ours, touch_in_workers
from tests.support.images import built_image
from tests.support.live import LATE, PATIENCE, eventually
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
DATABASE = "orchestrator/test-services:postgres"
PARALLEL = ("parallel", "--config", "services.yaml", "--agent-cli", "shell", "--image", DATABASE)
SERVICES = f"""\
services:
  db:
    image: {DATABASE}
    env: {{POSTGRES_PASSWORD: local-only}}
    health: pg_isready -h 127.0.0.1
    health_timeout: 240
    variables:
      DATABASE_URL: "postgres://postgres:local-only@{{host}}:{{port}}/postgres"
"""
# Stores the worker's number in its database; the web server reads it from there.
SERVE = """\
psql -q "$DATABASE_URL" -c "create table who as select $ORCHESTRATOR_WORKER_ID as id"
cat > server.py <<'P'
import http.server, os, subprocess
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = ["psql", "-tA", os.environ["DATABASE_URL"], "-c", "select id from who"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(subprocess.run(query, capture_output=True).stdout)
http.server.HTTPServer(("", int(os.environ["PORT"])), Answer).serve_forever()
P
exec python3 server.py
"""


@pytest.fixture(scope="module", autouse=True)
def database(docker_engine: DockerEngine) -> Iterator[str]:
    """Build the database's image; no registry is needed."""
    folder = Path(__file__).parent / "postgres"
    with built_image(docker_engine, folder, DATABASE):
        yield DATABASE


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    (repo / "services.yaml").write_text(SERVICES)
    return repo


def containers(client: docker.APIClient, repo: Path, **labels: str) -> list[dict[str, Any]]:
    wanted = {REPOSITORY: str(repo / ".git"), **labels}
    filters = {"label": [f"{key}={value}" for key, value in wanted.items()]}
    found: list[dict[str, Any]] = client.containers(all=True, filters=filters)
    return found


def urls_of(process: "subprocess.Popen[bytes]", count: int) -> dict[str, str]:
    """Return the workers' URLs from the output of a run."""
    found: dict[str, str] = {}
    said = []
    assert process.stderr is not None
    while len(found) < count:
        line = process.stderr.readline().decode()
        said.append(line)
        assert line, "".join(said)
        match = re.search(r"worker (\d+): (http://127\.0\.0\.1:\d+)", line)
        if match:
            found[match[1]] = match[2]
    return found


def fetch(url: str) -> str:
    """Fetch a page as soon as its server answers."""
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return str(answer.read().decode().strip())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_two_workers_with_databases_and_web_servers(repo: Path, client: docker.APIClient) -> None:
    process = start(
        *PARALLEL, SERVE, "--workers", "2", "--ports", "3000", "--timeout-per-worker", "300",
        "--grace", "1", cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        urls = urls_of(process, 2)
        assert len(set(urls.values())) == 2
        assert {number: fetch(url) for number, url in urls.items()} == {n: n for n in urls}
        assert reached(client, repo) == {}
        for service in containers(client, repo, **{ROLE: "service"}):
            check_permissions(client, service["Id"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 143
    assert ours(client, repo) == []


LOOK = """\
import socket, sys
for place in sys.argv[1:]:
    address, port = place.split(":")
    try:
        socket.create_connection((address, int(port)), 2).close()
        print(place)
    except OSError:
        pass
"""


def reached(client: docker.APIClient, repo: Path) -> dict[str, str]:
    """Try to reach other workers, their databases and this machine from each worker."""
    addresses = {
        one["Labels"][WORKER]: network["IPAddress"]
        for one in containers(client, repo, **{ROLE: "guard"})
        for network in one["NetworkSettings"]["Networks"].values()
    }
    assert len(addresses) == 2
    seen = {}
    with socket.create_server(("0.0.0.0", 0)) as machine:
        here = [f"{one}:{machine.getsockname()[1]}" for one in list(this_machine("").addresses)]
        assert here
        roles = ("worker", "service")
        for one in [one for role in roles for one in containers(client, repo, **{ROLE: role})]:
            number = one["Labels"][WORKER]
            others = [
                f"{address}:{port}"
                for other, address in addresses.items()
                for port in (5432, 3000)
                if other != number
            ]
            mine = ["127.0.0.1:5432", "127.0.0.1:3000"]
            found = inside(client, one["Id"], "python3", "-c", LOOK, *mine, *others, *here)
            if found.split() != mine:
                seen[one["Names"][0]] = found
    return seen


def wait_for(client: docker.APIClient, repo: Path, role: str) -> None:
    """Wait for a container of a role; a database on a busy machine needs time."""
    deadline = time.monotonic() + 240
    while not containers(client, repo, **{ROLE: role}):
        assert time.monotonic() < deadline
        time.sleep(0.1)


ALONE = """\
env | grep ^DB_ | sort
psql -tA "$DATABASE_URL" -c 'select 40 + 2'
python3 - <<'P'
import socket
print(sorted(name for _, name in socket.if_nameindex()))
P
cat .env
"""


@pytest.mark.variants("mounts")
@pytest.mark.usefixtures("transfer")
def test_without_a_network_only_services_are_reached(repo: Path, client: docker.APIClient) -> None:
    done = orchestrator(
        *PARALLEL, ALONE, "--workers", "1", "--network", "none", "--json", "--dotenv", ".env",
        "--setup", "echo OWN=1 >> .env", cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    log = Path(done.results[1]["log"])
    lines = (log / "stdout.log").read_text().splitlines()
    assert lines[:4] == ["DB_HOST=db", "DB_PORT=5432", "42", "['lo']"]
    assert (lines[4], lines[6:8]) == ("OWN=1", ["DB_HOST=db", "DB_PORT=5432"])
    assert done.results[1]["files_modified"] == []
    assert "ready to accept connections" in (log / "service-db.log").read_text()
    assert ours(client, repo) == []


def check_permissions(client: docker.APIClient, service: str) -> None:
    """Check that the container of a service has no more than it needs."""
    host = client.inspect_container(service)["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert sorted(host["CapAdd"]) == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
    privileges, profile = host["SecurityOpt"]
    assert privileges == "no-new-privileges"
    assert profile.startswith('seccomp={"defaultAction":"SCMP_ACT_ERRNO"')
    assert host["ReadonlyRootfs"]
    assert (host["Memory"], host["MemorySwap"]) == (1024**3, 1024**3)
    assert (host["NanoCpus"], host["PidsLimit"]) == (10**9, 256)
    assert not host["Binds"]
    assert not host.get("Mounts")
    assert set(host["Tmpfs"]) == {"/tmp", "/run", "/var/lib/postgresql/data"}
    status = inside(client, service, "sh", "-c", "grep CapEff /proc/1/status; id -u")
    assert status.split() == ["CapEff:", "00000000000000cb", "0"]


@pytest.mark.extra
def test_permissions_of_a_service_without_a_network(repo: Path, client: docker.APIClient) -> None:
    process = start(
        *PARALLEL, "sleep 300", "--workers", "1", "--network", "none", "--grace", "0", cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(client, repo, "worker")
        (service,) = containers(client, repo, **{ROLE: "service"})
        check_permissions(client, service["Id"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
    assert ours(client, repo) == []


@pytest.mark.extra
def test_dotenv_file_has_the_variables_of_services(
    repo: Path, client: docker.APIClient, tmp_path: Path
) -> None:
    (repo / ".env").write_text("OWN=1\n")
    task = "cat .env; ls -l .env | cut -c 1-10; git status --porcelain; echo w > w"
    done = orchestrator(
        *PARALLEL, task, "--workers", "1", "--network", "none", "--dotenv", ".env",
        "--copy", "/.env", "--json", cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = (Path(done.results[1]["log"]) / "stdout.log").read_text().splitlines()
    assert (said[0], said[2:4], said[-1]) == ("OWN=1", ["DB_HOST=db", "DB_PORT=5432"], "-rw-r--r--")
    assert done.results[1]["files_modified"] == ["w"]
    assert (repo / ".architect-parallel-1" / ".env").read_text() == "OWN=1\n"

    (tmp_path / "outside").mkdir()
    (repo / "apps").symlink_to(tmp_path / "outside")
    git(repo, "add", "apps")
    git(repo, "commit", "-m", "link")
    done = orchestrator(
        *PARALLEL, "true", "--workers", "1", "--network", "none", "--dotenv", "apps/.env", "--json",
        cwd=repo,
    )  # fmt: skip
    assert [result["reason"] for result in done.results.values()] == ["setup_failed"]
    assert list((tmp_path / "outside").iterdir()) == []
    assert ours(client, repo) == []


@pytest.mark.extra
def test_timeout_removes_the_services(repo: Path, client: docker.APIClient) -> None:
    done = orchestrator(
        *PARALLEL, "sleep 300", "--workers", "1", "--network", "none", "--timeout-per-worker", "2",
        "--grace", "0", "--json", cwd=repo,
    )  # fmt: skip
    assert done.results[1]["status"] == "timeout"
    # The start of the database does not count towards the worker's duration.
    assert 2 <= done.results[1]["duration"] < 2 + LATE
    assert ours(client, repo) == []


ACROSS = """\
psql -q "$DATABASE_URL" -c 'create table kept as select 7 as it'
echo made
until [ -e /tmp/go ]; do sleep 0.1; done
psql -tA "$DATABASE_URL" -c 'select it from kept'
"""


def killed_when(repo: Path, client: docker.APIClient, role: str, *rest: str) -> None:
    """Start a run, and kill its process as soon as a container of a role exists."""
    process = start(
        *PARALLEL, ACROSS, "--workers", "1", *rest, cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(client, repo, role)
    if role == "worker":
        (run,) = (repo / ".git" / "orchestrator" / "runs").glob("*/")
        log = run / "worker-1" / "stdout.log"
        eventually(lambda: log.exists() and "made" in log.read_text(), "its output")
    process.send_signal(signal.SIGKILL)
    process.wait()


def resumed(repo: Path, client: docker.APIClient) -> Path:
    """Resume a run; let its worker end once the run is live; return the directory of its log."""
    process = start("resume", "--json", cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    (run,) = (repo / ".git" / "orchestrator" / "runs").glob("*/")
    log = run / "worker-1" / "stdout.log"

    def waits() -> bool:
        return RunDirectory(run).is_live() and log.exists() and "made" in log.read_text()

    eventually(lambda: process.poll() is not None or waits(), "the resumed worker")
    touch_in_workers(client, repo, "/tmp/go")
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr.decode()
    (result,) = json.loads(stdout)["results"]
    return Path(result["log"])


@pytest.mark.parametrize("network", ["none", "open"])
@pytest.mark.extra
def test_resumed_run_takes_over_its_services(
    repo: Path, client: docker.APIClient, network: str
) -> None:
    killed_when(repo, client, "worker", "--network", network)
    (before,) = containers(client, repo, **{ROLE: "service"})
    log = resumed(repo, client)
    assert (log / "stdout.log").read_text() == "made\n7\n"
    assert "ready to accept connections" in (log / "service-db.log").read_text()
    assert before["Id"] not in [one["Id"] for one in containers(client, repo)]
    assert ours(client, repo) == []


@pytest.mark.extra
def test_services_without_a_worker_are_restarted(repo: Path, client: docker.APIClient) -> None:
    killed_when(repo, client, "service", "--network", "none")
    assert (resumed(repo, client) / "stdout.log").read_text() == "made\n7\n"
    assert ours(client, repo) == []


@pytest.mark.extra
def test_cleanup_removes_the_services_of_a_dead_run(repo: Path, client: docker.APIClient) -> None:
    killed_when(repo, client, "worker", "--network", "open")
    roles = sorted(one["Labels"][ROLE] for one in containers(client, repo))
    assert roles == ["holder", "host", "service", "worker"]
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0
    assert ours(client, repo) == []


@pytest.mark.extra
def test_concurrent_runs_have_their_own_ports_and_databases(
    tmp_path: Path, repo: Path, client: docker.APIClient
) -> None:
    other = make_repository(tmp_path / "other")
    (other / "services.yaml").write_text(SERVICES)
    both = [
        start(
            *PARALLEL, SERVE, "--workers", "1", "--ports", "3000", "--grace", "1", cwd=place,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for place in (repo, other)
    ]  # fmt: skip
    try:
        urls = [urls_of(process, 1)["1"] for process in both]
        assert len(set(urls)) == 2
        assert [fetch(url) for url in urls] == ["1", "1"]
    finally:
        for process in both:
            process.send_signal(signal.SIGTERM)
        for process in both:
            process.communicate(timeout=120)
    assert ours(client, repo) + ours(client, other) == []


def test_runtime_that_cannot_share_networks_is_refused(repo: Path) -> None:
    done = orchestrator(
        *PARALLEL, "true", "--runtime", "runsc", "--network", "none", "--dry-run", cwd=repo
    )  # fmt: skip
    assert done.returncode == 3
    assert "cannot share a network with its services" in done.stderr


def test_a_missing_image_starts_nothing(repo: Path, client: docker.APIClient) -> None:
    done = orchestrator(
        *PARALLEL, "true", "--service", "cache=orchestrator/nowhere:none", cwd=repo
    )  # fmt: skip
    assert done.returncode == 3
    assert "no such image: `orchestrator/nowhere:none`" in done.stderr
    assert ours(client, repo) == []


def test_plan_lists_the_services(repo: Path) -> None:
    done = orchestrator(
        *PARALLEL, "true", "--service", "cache=redis:8", "--dry-run", "--json", cwd=repo
    )  # fmt: skip
    assert json.loads(done.stdout)["services"] == {"db": DATABASE, "cache": "redis:8"}
