"""Tests of another OCI runtime, such as gVisor."""

from pathlib import Path

import docker
import pytest

from orchestrator.engine.egress import _FILTERED
from tests.support.cli import orchestrator
from tests.support.repository import git

pytestmark = pytest.mark.docker
GVISOR = "runsc"


def run(repo: Path, *options: str, runtime: str = GVISOR):
    task = "uname -v; echo x > new; git add -A; git commit -qm 'from another kernel'; echo y > rest"
    return orchestrator(
        "parallel", "--agent-cli", "shell", task, "--workers", "1", "--runtime", runtime, "--json",
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


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (("--network", "open"), "`--network none`"),
        (("--network", "allowlist", "--allow", "a.example"), "`--network none`"),
        (("--network", "none", "--ports", "80"), "no ports with `--network none`"),
        (("--network", "none", "--keys", "broker", "--env", "OPENAI_API_KEY=x"),
         "`--keys env` with `--network none`"),
    ],
    ids=["open", "gateway", "ports", "broker"],
)  # fmt: skip
def test_network_that_cannot_be_filtered_is_refused(
    repo: Path, options: tuple[str, ...], instead: str
) -> None:
    """A gateway stands outside of the runtime, but its guard's rules were never tried with it."""
    client = docker.APIClient(version="auto")
    others = sorted(set(client.info()["Runtimes"]) - _FILTERED)
    client.close()
    runtime = others[0] if others else GVISOR
    done = run(repo, *options, runtime=runtime)
    assert done.returncode == 3
    assert not list(repo.glob(".architect-parallel-*"))
    if not others:
        assert done.stderr.startswith(f"error: the Docker engine has no runtime `{GVISOR}`\n")
        return
    assert f"runtime `{runtime}` is not supported with a network: the packet filter" in done.stderr
    assert f"use {instead}; `orchestrator doctor` lists the engine's runtimes" in done.stderr
