"""Tests of another OCI runtime, such as gVisor."""

from pathlib import Path

import docker
import pytest

from tests.support.cli import orchestrator
from tests.support.repository import git

pytestmark = pytest.mark.docker
GVISOR = "runsc"


def run(repo: Path, *options: str):
    task = "uname -v; echo x > new; git add -A; git commit -qm 'from another kernel'; echo y > rest"
    return orchestrator(
        "parallel", "--agent-cli", "shell", task, "--workers", "1", "--runtime", GVISOR, "--json",
        "--timeout-per-worker", "90", *options, cwd=repo,
    )  # fmt: skip


def test_gvisor_is_used_if_available_else_refused(repo: Path) -> None:
    client = docker.APIClient(version="auto")
    runtimes = client.info()["Runtimes"]
    client.close()
    done = run(repo, "--network", "none")
    if GVISOR not in runtimes:
        assert done.returncode == 3
        assert done.stderr.startswith(f"error: the Docker engine has no runtime `{GVISOR}`\n")
        return
    result = done.results[1]
    assert result["status"] == "success", result
    assert result["files_modified"] == ["new", "rest"]
    assert git(repo, "log", "-1", "--format=%s", "architect/parallel-1~1") == "from another kernel"
    log = (Path(result["log"]) / "stdout.log").read_text()
    assert log.strip() != Path("/proc/version").read_text().strip()


def test_network_that_cannot_be_filtered_is_refused(repo: Path) -> None:
    done = run(repo, "--network", "open")
    assert done.returncode == 3
    assert "hint: " in done.stderr
    assert not list(repo.glob(".architect-parallel-*"))
