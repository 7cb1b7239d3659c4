"""Tests that containers die at their deadline without the run's process."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import docker
import pytest

from tests.support.cli import orchestrator, start
from tests.support.live import PATIENCE, eventually
from tests.support.repository import git

pytestmark = pytest.mark.docker
DEADLINE, GRACE = 10, 1
LATE = min(60.0, PATIENCE)
"""Accepted delay of the kill after deadline and grace on a busy machine, in seconds."""
STUBBORN = (
    "trap '' TERM; echo begun > work.txt; printf 'Go on? (y/n) '; while :; do sleep 0.1; done"
)


def running(client: docker.APIClient, repo: Path) -> list[str]:
    """Return the roles of the repository's running containers."""
    labels = [f"orchestrator.repository={repo}/.git"]
    return sorted(
        one["Labels"]["orchestrator.role"] for one in client.containers(filters={"label": labels})
    )


def begun(repo: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a run with a worker that ignores signals."""
    return start(
        "parallel", "--agent-cli", "shell", "--network", "none", "--workers", "1",
        "--timeout-per-worker", str(DEADLINE), "--grace", str(GRACE), *arguments,
        cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def worker_directory(repo: Path) -> Path:
    """Return the state directory of a worker once it has printed something."""
    runs = repo / ".git" / "orchestrator" / "runs"

    def found() -> list[Path]:
        logs = runs.glob("*/worker-1/stdout.log")
        return [log.parent for log in logs if log.stat().st_size]

    return Path(eventually(found, "output")[0])


@pytest.mark.variants("True")
@pytest.mark.parametrize("whole_group", [False, True])
def test_workers_of_a_killed_run_die_at_their_deadline(
    client: docker.APIClient, repo: Path, whole_group: bool
) -> None:
    """The resumed run reports findings from before and after the kill."""
    process = begun(repo, STUBBORN, *(("--prompts", "0.3") if whole_group else ()))
    directory = worker_directory(repo)
    started = time.monotonic()
    if whole_group:
        eventually((directory / "noticed.json").is_file, "the question")
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    eventually(lambda: not running(client, repo), "the end of a worker that nobody watches")
    assert time.monotonic() - started < DEADLINE + GRACE + LATE
    done = orchestrator("resume", "--json", cwd=repo)
    assert (done.returncode, done.results[1]["status"]) == (5, "timeout")
    message, (noticed,) = done.results[1]["message"], done.results[1]["interventions"]
    assert (
        "while no process watched it; noticed before: the agent waits for an answer: Go on? (y/n)"
        in message
    )
    assert noticed["trigger"] == "needs_input"
    assert git(repo, "show", "architect/parallel-1:work.txt") == "begun"


def test_deadline_is_kept_while_the_process_is_stopped(
    client: docker.APIClient, repo: Path
) -> None:
    """A stopped process watches no worker; when continued, it reports the worker's own times."""
    process = begun(repo, STUBBORN, "--idle-timeout", "8", "--report", "json=report.json")
    try:
        worker_directory(repo)
        started = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: not running(client, repo), "the end of a worker that nobody watches")
        assert time.monotonic() - started < DEADLINE + GRACE + LATE
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE) == 5
    (worker,) = json.loads((repo / "report.json").read_text())["workers"]
    lived = worker["result"]["duration"]
    # The promise is one second; a busy machine gets another one.
    assert DEADLINE + GRACE <= lived < DEADLINE + GRACE + 2


@pytest.mark.extra
def test_setup_of_a_killed_run_dies_at_its_deadline(client: docker.APIClient, repo: Path) -> None:
    """Also kills the services, and the container that owns their network."""
    (repo / "orchestrator.yaml").write_text(
        "setup_timeout: 8\n"
        f'setup: ["{STUBBORN}"]\n'
        "services: {cache: {image: orchestrator/base:latest, command: [sleep, infinity]}}\n"
    )
    process = begun(repo, "true", "--config", str(repo / "orchestrator.yaml"))
    eventually(lambda: "setup" in running(client, repo), "the start")
    assert running(client, repo) == ["holder", "service", "setup"]
    process.kill()
    process.wait()
    eventually(lambda: not running(client, repo), "the end of all of them")
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0


def test_workers_of_a_removed_checkout_are_killed(client: docker.APIClient, repo: Path) -> None:
    """A CI system kills the job and removes its checkout, so the run cannot be resumed.

    A paused container is killed too.
    """
    process = begun(repo, STUBBORN, "--timeout-per-worker", "600")
    worker_directory(repo)
    labels = [f"orchestrator.repository={repo}/.git"]
    (worker,) = client.containers(filters={"label": labels})
    client.pause(worker["Id"])
    # Stopped, the run creates no files while its directory is removed.
    process.send_signal(signal.SIGSTOP)
    shutil.rmtree(repo / ".git")
    process.kill()
    process.wait()
    eventually(lambda: not running(client, repo), "the end of a worker that nobody can resume")
    client.remove_container(worker["Id"], v=True, force=True)


@pytest.mark.extra
def test_worker_without_a_deadline_is_not_killed(client: docker.APIClient, repo: Path) -> None:
    """`--timeout-per-worker 0` means no deadline, and the run can be resumed."""
    process = start(
        "parallel", "--agent-cli", "shell", "--network", "none", "--workers", "1",
        "--timeout-per-worker", "0", "echo up; sleep 300",
        cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: "worker" in running(client, repo), "the start")
    (run,) = (repo / ".git" / "orchestrator" / "runs").glob("*/")
    process.kill()
    process.wait()

    def watched() -> bool:
        wanted = str(run / "lease").encode()
        places = [place for place in Path("/proc").iterdir() if place.name.isdecimal()]
        return any(wanted in commands(place) for place in places)

    eventually(lambda: not watched(), "the end of the switch: it has nothing to wait for")
    assert running(client, repo) == ["worker"]
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0
    assert running(client, repo) == []


def commands(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
