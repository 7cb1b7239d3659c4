"""Workers with `--network allowlist` and real containers.

The outside is in a network namespace of the test; no packet leaves this machine.
"""

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import REPOSITORY, ROLE
from tests.support.cli import orchestrator, printed, start
from tests.support.daemon import ours, touch_in_workers
from tests.support.live import eventually
from tests.support.outside import PUBLIC, Outside, outside
from tests.support.repository import git

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell", "--json", "--workers", "1")
ALLOWLIST = (*SHELL, "--network", "allowlist")
FILES, OTHER, WIDE = (
    f"{name}=10.99.112.0/24" for name in ("files.example", "other.example", "*.wide.example")
)
KEEP = ("--retries", "1", "--retry-delay", "0", "--retry-from", "keep")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with outside(tmp_path_factory.mktemp("outside")) as made:
        yield made


def fetch(*urls: str, seconds: int = 60) -> str:
    """Return a command that prints one line for each URL: what was served, or `closed`."""
    curl = f'curl -kfsS -m {seconds} "$url" 2>/dev/null || echo "closed $url"'
    return f"for url in {shlex.join(urls)}; do {curl}; done"


def served(address: str, port: int = 443, path: str = "/") -> str:
    return f"served {address}:{port} {path}"


def lines_of(done: Any, worker: int = 1) -> list[str]:
    assert done.returncode == 0, done.stderr
    return printed(done.results[worker]).splitlines()


def containers(client: docker.APIClient, repo: Path, role: str) -> list[str]:
    labels = [f"{REPOSITORY}={repo / '.git'}", f"{ROLE}={role}"]
    return [found["Id"] for found in client.containers(filters={"label": labels})]


def test_only_listed_hosts_are_reached(
    world: Outside, repo: Path, client: docker.APIClient
) -> None:
    world.forget()
    open_urls = {
        "https://files.example/a": served("10.99.112.10", path="/a"),
        "http://other.example/": served("10.99.112.11", 80),
        "https://other.example:8443/": served("10.99.112.11", 8443),
        "https://a.wide.example/": served("10.99.112.12"),
    }
    closed_urls = (
        # Not on the allow-list: other ports, the domain of a wildcard, an address.
        "https://other.example/", "http://files.example/",
        "https://files.example:8443/", "https://wide.example/", "https://10.99.112.10/",
        # On the allow-list, but with an address that is always blocked or not allowed.
        "https://metadata.example/", "https://loopback.example/", "https://machine.example/",
        "https://private.example/",
    )  # fmt: skip
    options = (
        FILES, f"{OTHER.replace('=', ':80=')}", f"{OTHER.replace('=', ':8443=')}", WIDE,
        "metadata.example", "loopback.example", "machine.example=10.99.112.0/24", "private.example",
    )  # fmt: skip
    task = f"{fetch(*open_urls, *closed_urls)}; env | grep -i proxy"
    allowed = [word for option in options for word in ("--allow", option)]
    done = world.orchestrator(*ALLOWLIST, *allowed, f"{task}; true", cwd=repo)
    expected = [*open_urls.values(), *(f"closed {url}" for url in closed_urls)]
    assert lines_of(done) == expected
    assert {entry["address"] for entry in world.seen("connection")} == {
        "10.99.112.10", "10.99.112.11", "10.99.112.12",
    }  # fmt: skip
    assert world.names() == {
        "files.example", "other.example", "a.wide.example", "metadata.example",
        "loopback.example", "machine.example", "private.example",
    }  # fmt: skip
    assert ours(client, repo) == []


@pytest.mark.extra
def test_tasks_of_a_workflow_have_lists_of_their_own(world: Outside, repo: Path) -> None:
    hosts = ("files", "other", "private")
    all_three = fetch(*(f"https://{name}.example/" for name in hosts))
    lists = {"files": FILES, "other": OTHER, "private": "private.example=10.99.113.0/24"}
    tasks: list[dict[str, Any]] = [
        {"id": name, "task": all_three, "network": "allowlist", "allow": [entry]}
        for name, entry in lists.items()
    ]
    tasks.append({"id": "none", "task": all_three})
    (repo / "flow.yaml").write_text(yaml.safe_dump({"tasks": tasks}))
    (repo / "none.yaml").write_text("container: {network: none}\n")
    command = ("spec", "run", "flow.yaml", "--agent-cli", "shell", "--json")
    done = world.orchestrator(*command, "--config", "none.yaml", cwd=repo)
    closed = [f"closed https://{name}.example/" for name in hosts]
    opened = [served("10.99.112.10"), served("10.99.112.11"), served("10.99.113.10")]
    assert lines_of(done, 1) == [opened[0], closed[1], closed[2]]
    assert lines_of(done, 2) == [closed[0], opened[1], closed[2]]
    assert lines_of(done, 3) == [closed[0], closed[1], opened[2]]
    assert lines_of(done, 4) == closed


@pytest.mark.extra
def test_each_stage_has_a_list_of_its_own(world: Outside, repo: Path) -> None:
    both = fetch("https://files.example/", "https://other.example/")
    (repo / "mine.yaml").write_text(
        f"""\
container:
  network: none
  setup_network: allowlist
  setup_allow: ["{FILES}"]
  check_network: allowlist
  check_allow: ["{OTHER}"]
"""
    )
    done = world.orchestrator(
        *SHELL, "--config", "mine.yaml", "--setup", both, "--check", both,
        f"{both}; touch made", cwd=repo,
    )  # fmt: skip
    closed = [f"closed https://{name}.example/" for name in ("files", "other")]
    assert lines_of(done) == closed
    log = Path(done.results[1]["log"])
    setup, check = ((log / f"{name}.log").read_text() for name in ("setup", "check-1"))
    assert setup.splitlines()[1:] == [served("10.99.112.10"), closed[1]]
    assert check.splitlines()[1:] == [closed[0], served("10.99.112.11")]


@pytest.mark.extra
def test_services_share_the_network_of_the_worker(world: Outside, repo: Path) -> None:
    (repo / "mine.yaml").write_text(
        f"""\
services:
  web:
    image: {BASE_IMAGE}
    command: [python3, -m, http.server, "8000", --directory, /usr/share/doc]
    port: 8000
"""
    )
    urls = ("http://web:8000/", "https://files.example/", "https://other.example/")
    done = world.orchestrator(
        *ALLOWLIST, "--config", "mine.yaml", "--allow", FILES,
        f"{fetch(*urls)} | tail -n 2; curl -fsS http://web:8000/ >/dev/null && echo web", cwd=repo,
    )  # fmt: skip
    assert lines_of(done) == [served("10.99.112.10"), f"closed {urls[2]}", "web"]


def _started(world: Outside, repo: Path, task: str, *options: str) -> "subprocess.Popen[bytes]":
    """Start a run, and wait until its worker has fetched something."""
    world.forget()
    command = world.command(*ALLOWLIST, *options, "--allow", FILES, task)
    process = subprocess.Popen(command, cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    eventually(lambda: world.seen("tls"), "a request")
    return process


@pytest.mark.extra
def test_resumed_run_uses_its_gateway_and_leaves_nothing(
    world: Outside, repo: Path, client: docker.APIClient
) -> None:
    url = "https://files.example/"
    nap = "until curl -kfsS https://files.example/next | grep next; do sleep 0.2; done; sleep 5"
    process = _started(world, repo, f"{fetch(url)}; {nap}; {fetch(url)}")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(containers(client, repo, "gateway")) == 1
    done = world.orchestrator("resume", "--json", cwd=repo)
    assert lines_of(done) == [served("10.99.112.10", path=path) for path in ("/", "/next", "/")]
    assert ours(client, repo) == []
    # No connection is missing in the log, and none was recorded twice.
    lines = (Path(done.results[1]["log"]) / "network.ndjson").read_text().splitlines()
    assert [json.loads(line)["decision"] for line in lines] == ["allowed"] * len(world.seen("tls"))


@pytest.mark.extra
def test_worker_reaches_nothing_without_its_gateway_and_cleanup_removes_all(
    world: Outside, repo: Path, client: docker.APIClient
) -> None:
    url = "https://files.example/"
    wait = "until [ -e /tmp/go ]; do sleep 0.1; done"
    again = f"{fetch(url)}; {wait}; {fetch(url, url, seconds=4)}; sleep 600"
    process = _started(world, repo, again)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (gateway,) = containers(client, repo, "gateway")
    client.kill(gateway)
    (worker,) = containers(client, repo, "worker")
    touch_in_workers(client, repo, "/tmp/go")
    eventually(lambda: client.logs(worker).count(b"\n") == 3, "all attempts")
    assert client.logs(worker).decode().splitlines()[1:] == [f"closed {url}"] * 2
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0
    assert ours(client, repo) == []


@pytest.mark.extra
def test_worker_that_lost_its_gateway_reports_it_and_is_retried(
    world: Outside, repo: Path, client: docker.APIClient
) -> None:
    url = "https://files.example/"
    until = f"while curl -kfs -m 12 {url} >/dev/null; do sleep 0.1; done; echo closed; exit 1"
    first = f"touch once; trap '' TERM; {fetch(url)}; {until}"
    task = f"if [ -e once ]; then {fetch(url)}; else {first}; fi"
    process = _started(world, repo, task, *KEEP, "--grace", "120")
    (gateway,) = containers(client, repo, "gateway")
    client.kill(gateway)
    stdout, _ = process.communicate()
    (result,) = json.loads(stdout)["results"]
    assert (result["status"], result["attempts"]) == ("success", 2)
    assert Path(result["log"], "stdout.log").read_text().splitlines() == [served("10.99.112.10")]
    earlier = Path(f"{result['log']}.attempt-1")
    said = (earlier / "stdout.log").read_text().splitlines()
    assert said[-1] == "closed"
    lost = json.loads((earlier / "attempt.json").read_text())
    assert lost["reason"] == "network_lost"
    why = "the worker lost its network: its gateway ended (exit code 137)"
    assert why in lost["message"]
    assert ours(client, repo) == []


def test_network_log_has_what_was_allowed_and_what_was_refused(world: Outside, repo: Path) -> None:
    task = fetch("https://files.example/", "https://other.example/", "https://private.example/")
    hello = f'{task}; python3 -c \'import socket; socket.getaddrinfo("x" * 9 + ".example", 1)\''
    (repo / "sets.yaml").write_text(f"container: {{allow_sets: {{docs: [{FILES}]}}}}\n")
    done = world.orchestrator(
        *ALLOWLIST, "--config", "sets.yaml", "--allow", "@docs", "--allow", "private.example",
        f"{hello}; true", cwd=repo,
    )  # fmt: skip
    lines = (Path(done.results[1]["log"]) / "network.ndjson").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    found = {(one["host"], one["port"], one["decision"], one["reason"]) for one in records}
    assert found == {
        ("files.example", 443, "allowed", None),
        ("other.example", None, "refused", "name"),
        ("private.example", 443, "refused", "address"),
        ("xxxxxxxxx.example", None, "refused", "name"),
    }
    (allowed,) = (one for one in records if one["decision"] == "allowed")
    assert allowed["received"] > len(served("10.99.112.10"))
    advice = "`--allow other.example --allow xxxxxxxxx.example`"
    assert f"worker 1 was refused hosts that are not on its allow-list: {advice}" in done.stderr
    counts = done.results[1]["network"]
    assert (counts["allowed"], counts["refused"]) == (1, 3)
    assert counts["received"] == sum(one["received"] for one in records)
    listed = orchestrator("network", "log", "--json", cwd=repo).json
    assert [one["host"] for one in listed["connections"]] == [one["host"] for one in records]
    assert listed["refused"] == ["other.example", "xxxxxxxxx.example"]


@pytest.mark.variants("name")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--network", "open"),
         "10.99.112.10:443 at a private address, `--allow 10.99.112.10:443`"),
        (("--network", "allowlist", "--allow", "files.example"),
         "files.example:443 at a private address, `--allow files.example=NETWORK`"),
        (("--network", "allowlist", "--allow", "public.example"),
         "files.example, `--allow files.example`"),
    ],
    ids=["open", "address", "name"],
)  # fmt: skip
def test_refused_host_is_named_in_the_result(
    world: Outside, repo: Path, options: tuple[str, ...], told: str
) -> None:
    # With an open network, the engine's name server does not know the names of the outside.
    host = "10.99.112.10" if "open" in options else "files.example"
    done = world.orchestrator(*SHELL, *options, f"curl -kfsS -m 9 https://{host}/", cwd=repo)
    result = done.results[1]
    assert result["status"] == "failed"
    assert f"refused: {told}" in result["message"]
    assert told.rpartition("`")[0].rpartition("`")[2] in done.stderr
    assert result["network"]["refused"] == 1
    if "open" not in options:
        return
    # Without a refusal, nothing is told of a network that is open.
    done = world.orchestrator(*SHELL, "--network", "open", "true", cwd=repo)
    (result,) = done.results.values()
    assert (result["message"], result["network"]) == (None, None)


FLOOD = """
import socket, struct, sys
server = open("/etc/resolv.conf").read().split()[1]
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(10_000):
    label = b'"%d {"host": \\\\n"\\'`$(id)<b>' % number + bytes([number % 10 and 45])
    name = bytes([len(label)]) + label + b"\\7example\\0"
    client.sendto(struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + name + b"\\0\\1\\0\\1", (server, 53))
for number in range(200):
    with socket.create_connection((server, 80)) as web:
        web.sendall(b"GET / HTTP/1.1\\r\\nHost: \\x1b[31m\\"%d{\\xff.example\\r\\n\\r\\n" % number)
        web.recv(100)
"""


@pytest.mark.extra
def test_flood_of_hostile_names_hides_no_connection(world: Outside, repo: Path) -> None:
    size = 3_000_000
    (repo / "flood.py").write_text(FLOOD)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "flood")
    load = "curl -kfsS https://files.example/big http://files.example/big | wc -c"
    with world.site() as site:
        (site / "big").write_bytes(b"x" * size)
        done = world.orchestrator(
            *ALLOWLIST, "--allow", FILES, "--allow", f"http://{FILES}",
            f"{load}; python3 flood.py; {load}", cwd=repo,
        )  # fmt: skip
    assert lines_of(done) == [str(2 * size)] * 2
    log = Path(done.results[1]["log"]) / "network.ndjson"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    allowed = [one for one in records if one["decision"] == "allowed"]
    assert [one["host"] for one in allowed] == ["files.example"] * 4
    counts = done.results[1]["network"]
    assert counts["allowed"] == 4
    # All requests are there; the name server drops queries and lines that come too fast.
    assert counts["refused"] > 200
    # TLS adds a little to two of the four files.
    assert 4 * size < counts["received"] < 4 * size * 1.01 + 200 * 400
    assert log.stat().st_size < 17 << 20
    assert all(value.isprintable() for one in records for value in map(str, one.values()))


@pytest.mark.extra
def test_connections_of_a_running_worker_are_shown(world: Outside, repo: Path) -> None:
    urls = ("https://files.example/", "https://other.example/")
    process = _started(world, repo, f"{fetch(*urls)}; sleep 600")
    (state,) = (repo / ".git/orchestrator/runs").glob("*/worker-1")
    watching = start("watch", cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert watching.stderr is not None
    said = next(line for line in watching.stderr if b"was refused" in line)
    assert said == b"worker 1 was refused other.example (name)\n"
    # The proxy and the name server print independently of each other.
    eventually(lambda: (state / "network.ndjson").read_text().count("\n") == 2, "both lines")
    listed = orchestrator("network", "log", "--json", cwd=repo).json["connections"]
    assert sorted((one["host"], one["decision"]) for one in listed) == [
        ("files.example", "allowed"), ("other.example", "refused"),
    ]  # fmt: skip
    assert not (state / "result.json").exists()
    process.send_signal(signal.SIGTERM)
    process.communicate()
    watching.stderr.read()
    watching.wait()
    watching.stderr.close()


def test_learned_list_is_enough_for_the_same_task(world: Outside, repo: Path) -> None:
    world.forget()
    urls = ("https://public.example/a", "http://public.example/b", "https://files.example/")
    closed = ("https://private.example/", "https://metadata.example/", "https://machine.example/")
    task = f"{fetch(*urls, *closed)}; getent ahostsv6 public.example || echo none"
    learn = (*SHELL, "--network", "learn", "--allow", FILES)
    expected = [
        served(PUBLIC, path="/a"), served(PUBLIC, 80, "/b"), served("10.99.112.10"),
        *(f"closed {url}" for url in closed), "none",
    ]  # fmt: skip
    done = world.orchestrator(*learn, task, cwd=repo)
    assert lines_of(done) == expected
    learned = ["public.example", "http://public.example"]
    options = [word for entry in learned for word in ("--allow", entry)]
    said = "worker 1 reached hosts that are not on its allow-list"
    assert f"{said}: `{' '.join(options)}`" in done.stderr
    found = orchestrator("network", "log", "--json", cwd=repo).json
    assert found["learned"] == learned
    reasons = {(one["host"], one["decision"], one["reason"]) for one in found["connections"]}
    assert reasons == {
        ("public.example", "allowed", "learned"), ("files.example", "allowed", None),
        *((f"{name}.example", "refused", "address") for name in ("private", "metadata", "machine")),
    }  # fmt: skip
    again = world.orchestrator(*ALLOWLIST, "--allow", FILES, *options, task, cwd=repo)
    assert lines_of(again, 2) == expected


@pytest.mark.extra
def test_programs_work_unchanged_with_listed_hosts(world: Outside, repo: Path) -> None:
    task = (
        "git -c http.sslVerify=false clone -q https://files.example/repo.git cloned && "
        "git -C cloned log --format=%s; "
        "curl -kfsS https://files.example/text; "
        "python3 -c 'import urllib.request as web; "
        'print(web.urlopen("http://other.example/text").read().decode(), end="")\'; '
        "git -c http.sslVerify=false clone -q https://other.example/repo.git closed 2>/dev/null "
        "|| echo closed; rm -rf cloned; env | grep -ci proxy; true"
    )
    with world.site() as site:
        git(site, "clone", "--quiet", "--bare", str(repo), "repo.git")
        git(site / "repo.git", "update-server-info")
        (site / "text").write_text("text\n")
        plain = f"http://{OTHER}"
        done = world.orchestrator(*ALLOWLIST, "--allow", FILES, "--allow", plain, task, cwd=repo)
    subject = git(repo, "log", "--format=%s").strip()
    assert lines_of(done) == [*subject.splitlines(), "text", "text", "closed", "0"]
