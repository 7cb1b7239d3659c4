"""Tests of another OCI runtime, such as gVisor."""

from pathlib import Path

import docker
import pytest

from orchestrator.engine.egress import _FILTERED
from tests.support.cli import orchestrator

pytestmark = pytest.mark.docker
GVISOR = "runsc"


def run(repo: Path, *options: str, runtime: str = GVISOR):
    return orchestrator(
        "parallel", "--agent-cli", "shell", "true", "--workers", "1", "--json",
        "--runtime", runtime, "--timeout-per-worker", "90", *options, cwd=repo,
    )  # fmt: skip


def test_runtime_that_the_engine_lacks_is_refused(repo: Path) -> None:
    client = docker.APIClient(version="auto")
    runtimes = client.info()["Runtimes"]
    client.close()
    done = run(repo, "--network", "none")
    assert GVISOR not in runtimes, "`make engines` tests an engine that has it"
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: the Docker engine has no runtime `{GVISOR}`\n")


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
