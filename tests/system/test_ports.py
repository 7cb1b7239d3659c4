"""Tests of workers' ports published on this machine."""

import re
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.cli import orchestrator, start

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell")


def test_four_web_servers_on_port_3000(repo: Path) -> None:
    serve = (
        'echo "$ORCHESTRATOR_WORKER_ID" > id; echo "$PORT_URL"; '
        "timeout 60 python3 -m http.server $PORT"
    )
    process = start(
        *SHELL, serve, "--workers", "4", "--ports", "3000", "--timeout-per-worker", "100",
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
        assert process.wait(timeout=60) == 143
        drain.join()
        process.stderr.close()


def fetch(url: str) -> str:
    """Fetch a page as soon as its server answers."""
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode().strip()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_result_lists_the_ports(repo: Path) -> None:
    done = orchestrator(
        *SHELL, "true", "--workers", "2", "--ports", "3000,3010", "--json", cwd=repo
    )  # fmt: skip
    published = [port for r in done.results.values() for port in r["ports"].values()]
    assert [sorted(r["ports"]) for r in done.results.values()] == [["3000", "3010"]] * 2
    assert len(set(published)) == 4
