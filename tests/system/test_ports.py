"""Tests of workers' ports published on this machine."""

import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.engine.images.names import BASE_IMAGE
from tests.support.bridge import bridge_gateway
from tests.support.cli import orchestrator, printed, start
from tests.support.live import PATIENCE, eventually
from tests.support.repository import git

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell")


@pytest.mark.extra
def test_four_web_servers_on_port_3000(repo: Path) -> None:
    serve = (
        'echo "$ORCHESTRATOR_WORKER_ID" > id; echo "$PORT_URL"; '
        "timeout 300 python3 -m http.server $PORT"
    )
    process = start(
        *SHELL, serve, "--workers", "4", "--ports", "3000", "--timeout-per-worker", "300",
        "--grace", "1", cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        urls = set()
        deadline = time.monotonic() + 180
        while len(urls) < 4 and time.monotonic() < deadline:
            line = process.stderr.readline().decode()
            urls |= set(re.findall(r"http://127\.0\.0\.1:\d+", line))
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        answers = sorted(fetch(f"{url}/id") for url in urls)
        assert answers == ["1", "2", "3", "4"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE) == 143
        drain.join()
        process.stderr.close()


def fetch(url: str) -> str:
    """Fetch a page as soon as its server answers."""
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.read().decode().strip()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.extra
def test_result_lists_the_ports(repo: Path) -> None:
    done = orchestrator(
        *SHELL, "true", "--workers", "2", "--ports", "3000,3010", "--json", cwd=repo
    )  # fmt: skip
    published = [port for r in done.results.values() for port in r["ports"].values()]
    assert [sorted(r["ports"]) for r in done.results.values()] == [["3000", "3010"]] * 2
    assert len(set(published)) == 4


SERVE_ONE = """
import http.server, re, socket, sys
from pathlib import Path
place = ("0.0.0.0", int(sys.argv[1]))
http.server.HTTPServer(place, http.server.SimpleHTTPRequestHandler).handle_request()
gateway = re.search("nameserver (.+)", Path("/etc/resolv.conf").read_text())[1]
machine, port = sys.argv[2], int(sys.argv[3])
for place in ((gateway, 80), (gateway, port), (machine, port)):
    try:
        socket.create_connection(place, 3).close()
        print("reached", *place)
    except OSError:
        print("held")
"""


@pytest.mark.parametrize(
    "options",
    [
        ("--network", "none"),
        pytest.param(
            ("--network", "allowlist", "--allow", "a.example"), marks=pytest.mark.extra
        ),
        pytest.param(("--network", "learn"), marks=pytest.mark.extra),
        pytest.param(("--network", "none", "--config", "web.yaml"), marks=pytest.mark.extra),
    ],
    ids=["none", "allowlist", "learn", "services"],
)  # fmt: skip
def test_port_of_a_confined_worker_is_published(repo: Path, options: tuple[str, ...]) -> None:
    (repo / "web.yaml").write_text(
        f"services: {{web: {{image: {BASE_IMAGE}, command: [sleep, '600']}}}}\n"
    )
    said = served_once(repo, "", options)
    assert said[1:] == ["held"] * 2
    # With the network `learn`, the gateway's own port 80 is open: it passes requests on.
    assert said[0].startswith("held" if "learn" not in options else "reached")


def served_once(
    repo: Path, then: str, options: tuple[str, ...], env: Mapping[str, str] | None = None
) -> list[str]:
    """Fetch a page from a worker's port, which then runs a command; return what it printed.

    Before the command, the worker tries to connect to a port of this machine that is open.
    """
    (repo / "serve.py").write_text(SERVE_ONE)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "server")
    with socket.create_server(("0.0.0.0", 0)) as machine:
        task = f"python3 serve.py $PORT {bridge_gateway()} {machine.getsockname()[1]}; {then}"
        process = start(
            *SHELL, task, "--workers", "1", "--ports", "3000", "--json", *options, cwd=repo,
            env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        noted = repo / ".git/orchestrator/runs"
        port = eventually(lambda: [path.read_text() for path in noted.glob("*/ports-1")])[0]
        assert fetch(f"http://127.0.0.1:{port}/serve.py") == SERVE_ONE.strip()
        stdout, _ = process.communicate(timeout=120)
    (result,) = json.loads(stdout)["results"]
    assert (result["status"], result["ports"]) == ("success", {"3000": int(port)})
    return printed(result).splitlines()


@pytest.mark.extra
@pytest.mark.usefixtures("broker_image")
@pytest.mark.parametrize("network", ["none", "open"])
def test_port_of_a_worker_with_the_broker_is_published(repo: Path, network: str) -> None:
    ask = (
        'curl -s -o /dev/null -w "%{http_code}\\n" -H "Authorization: Bearer $OPENAI_API_KEY" '
        '"$OPENAI_BASE_URL/files"; case "$OPENAI_API_KEY" in sk-ant-gateway-*) echo token;; esac'
    )
    options = ("--keys", "broker", "--network", network, "--env", "OPENAI_API_KEY")
    said = served_once(repo, ask, options, env={"OPENAI_API_KEY": "sk-canary-2c7e90d4"})
    # The broker answers, and refuses this call.
    assert said[-2:] == ["403", "token"]


@pytest.mark.extra
def test_resumed_run_keeps_the_port_of_a_confined_worker(repo: Path) -> None:
    serve = 'echo up > page; python3 -m http.server "$PORT" & until [ -e stop ]; do sleep 0.1; done'
    process = start(
        *SHELL, serve, "--workers", "1", "--ports", "3000", "--network", "none",
        cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    noted = repo / ".git/orchestrator/runs"
    port = eventually(lambda: [path.read_text() for path in noted.glob("*/ports-1")])[0]
    url = f"http://127.0.0.1:{port}"
    assert fetch(f"{url}/page") == "up"
    process.kill()
    process.wait()
    assert fetch(f"{url}/page") == "up"
    resumed = start("resume", "--json", cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert fetch(f"{url}/page") == "up"
    assert orchestrator("exec", "1", "--", "touch", "stop", cwd=repo).returncode == 0
    stdout, _ = resumed.communicate(timeout=120)
    (result,) = json.loads(stdout)["results"]
    assert (result["status"], result["ports"]) == ("success", {"3000": int(port)})
    with socket.create_server(("127.0.0.1", int(port))):
        pass  # Nothing listens there any more.
