"""Tests of runs whose files are sent to volumes of the engine, with `--transfer streams`."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import REPOSITORY, STEP, WORKER
from orchestrator.state.record.states import WorkerState
from tests.support.cli import orchestrator, start
from tests.support.live import LATE, eventually, states
from tests.support.repository import git

pytestmark = pytest.mark.docker
STREAMS = ("--agent-cli", "shell", "--network", "none", "--transfer", "streams")
RUN = ("parallel", *STREAMS)
WAIT = "echo begun; echo begun >> runs.txt; sleep {}; echo done; echo done >> runs.txt"


def ours(repo: Path) -> list[str]:
    engine = DockerEngine()
    try:
        found = engine.leftovers({REPOSITORY: f"{repo}/.git"})
    finally:
        engine.close()
    return [f"{left.kind} {left.id}" for left in found]


@contextmanager
def watched(client: docker.APIClient, repo: Path) -> Iterator[list[dict[str, Any]]]:
    """Collect the mounts of all containers of workers that exist during the `with` block."""
    seen: dict[str, list[dict[str, Any]]] = {}
    ended = threading.Event()
    filters = {"label": [f"{REPOSITORY}={repo}/.git", WORKER]}

    def look() -> None:
        while not ended.wait(0.1):
            for found in client.containers(all=True, filters=filters):
                if found["Id"] not in seen:
                    try:
                        inspected = client.inspect_container(found["Id"])
                    except docker.errors.NotFound:
                        continue
                    seen[found["Id"]] = inspected["Mounts"]
                    binds.extend(inspected["HostConfig"]["Binds"] or ())

    mounts: list[dict[str, Any]] = []
    binds: list[str] = []
    looker = threading.Thread(target=look)
    looker.start()
    try:
        yield mounts
    finally:
        ended.set()
        looker.join()
    assert binds == []
    mounts.extend(mount for found in seen.values() for mount in found)


def test_work_comes_back_and_no_file_of_this_machine_is_mounted(
    repo: Path, client: docker.APIClient
) -> None:
    commits = "echo a > a; git add a; git commit -qm 'of the worker'; echo b > b"
    hands = 'mkdir build; echo x > build/x; echo found > "$ORCHESTRATOR_FINDINGS"'
    secret = 'sha256sum < "$ORCHESTRATOR_SECRETS/THE_TOKEN"'
    (repo / ".gitignore").write_text("build\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "ignores")
    with watched(client, repo) as mounts:
        done = orchestrator(
            *RUN, "--task", f"{commits}; {hands}; {secret}", "--task", "ls -A; rm a.txt; exit 3",
            "--workers", "2", "--secret", "THE_TOKEN", "--setup", "echo of setup > made",
            "--teardown", "cat made b > both", "--json", "--fail-on", "all",
            cwd=repo, env={"THE_TOKEN": "correct-horse-battery"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = done.results[1], done.results[2]
    assert first["status"] == "success"
    assert git(repo, "show", "architect/parallel-1:both") == "of setup\nb"
    assert git(repo, "log", "--format=%s", "architect/parallel-1").splitlines()[1:3] == [
        "of the worker", "ignores",
    ]  # fmt: skip
    assert "`build/x`" in first["message"]
    log = Path(first["log"])
    assert (log / "findings.md").read_text() == "found\n"
    digest = hashlib.sha256(b"correct-horse-battery").hexdigest()
    assert (log / "stdout.log").read_text().split()[0] == digest
    assert (second["status"], second["exit_code"]) == ("failed", 3)
    assert git(repo, "diff", "--name-status", "HEAD", "architect/parallel-2").splitlines() == [
        "D\ta.txt", "A\tboth", "A\tmade",
    ]  # fmt: skip
    assert (Path(first["worktree_path"]) / "a").read_text() == "a\n"
    volumes = f"{client.info()['DockerRootDir']}/volumes/"
    # An engine that mounts one file of a volume calls this a bind mount.
    assert mounts
    assert [m for m in mounts if not m.get("Source", "").startswith(volumes)] == []
    assert ours(repo) == []


def test_cleanup_collects_the_work_of_a_killed_run(repo: Path) -> None:
    hands = 'echo found > "$ORCHESTRATOR_FINDINGS"; echo x > "$ORCHESTRATOR_ARTIFACTS/made"'
    task = f"{hands}; echo build > .gitignore; echo b > build; {WAIT.format(300)}"
    process = start(
        *RUN, task, "--workers", "2", cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    logs = (repo / ".git/orchestrator/runs").glob
    eventually(lambda: [p.read_text() for p in logs("*/*/stdout.log")] == ["begun\n"] * 2, "work")
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Somebody removes the place of the second worker.
    engine = DockerEngine()
    try:
        found = engine.leftovers({REPOSITORY: f"{repo}/.git", WORKER: "2"})
        for left in sorted(found, key=lambda left: left.kind):
            engine.remove(left)
    finally:
        engine.close()

    done = orchestrator("parallel-cleanup", cwd=repo)
    assert (done.returncode, "the work in it" in done.stderr) == (1, True), done.stderr
    assert "`build`" in done.stdout
    assert git(repo, "branch", "--list", "architect/*").split()[-1] == "architect/parallel-2"
    (log,) = logs("*/worker-1")
    assert (log / "findings.md").read_text() == "found\n"
    assert (log / "artifacts/made").read_text() == "x\n"
    assert [left for left in ours(repo) if "-1-" in left] == []
    assert orchestrator("parallel-cleanup", "--purge", "2", cwd=repo).returncode == 0
    assert ours(repo) == []
    orchestrator("restore", "1", cwd=repo)
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun"
    orchestrator("parallel-cleanup", "--purge", cwd=repo)


@pytest.mark.extra
def test_a_killed_run_is_resumed_and_the_task_runs_once(repo: Path) -> None:
    process = start(
        *RUN, WAIT.format(8), "--workers", "1", cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    process.send_signal(signal.SIGKILL)
    process.wait()

    done = orchestrator("resume", "--json", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert done.results[1]["status"] == "success"
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun\ndone"
    log = Path(done.results[1]["log"]) / "stdout.log"
    assert log.read_text() == "begun\ndone\n"
    assert ours(repo) == []


@pytest.mark.extra
def test_work_is_collected_although_its_porter_has_ended(
    repo: Path, client: docker.APIClient
) -> None:
    process = start(
        *RUN, WAIT.format(2), "--workers", "1", cwd=repo,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    process.send_signal(signal.SIGKILL)
    process.wait()
    of_run = {"label": [f"{REPOSITORY}={repo}/.git"]}
    (agent,) = (
        found["Id"]
        for found in client.containers(all=True, filters=of_run)
        if found["Labels"].get(STEP) == "agent"
    )
    client.wait(agent, timeout=60)
    for found in client.containers(all=True, filters=of_run):
        if found["Names"][0].endswith("-porter"):
            client.kill(found["Id"])
    done = orchestrator("resume", "--json", cwd=repo)
    assert done.results[1]["status"] == "success"
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun\ndone"
    assert (Path(done.results[1]["log"]) / "stdout.log").read_text() == "begun\ndone\n"
    assert ours(repo) == []


@pytest.mark.extra
def test_the_deadline_is_kept_while_the_client_is_stopped(
    repo: Path, client: docker.APIClient
) -> None:
    process = start(
        *RUN, WAIT.format(300), "--workers", "1", "--timeout-per-worker", "8", "--grace", "0",
        "--json", cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    labels = {"label": [f"{REPOSITORY}={repo}/.git", "orchestrator.role=worker"]}
    try:
        eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
        process.send_signal(signal.SIGSTOP)
        (agent,) = (found["Id"] for found in client.containers(filters=labels))
        client.wait(agent, timeout=60)
        state = client.inspect_container(agent)["State"]
    finally:
        process.send_signal(signal.SIGCONT)
    stdout, _ = process.communicate(timeout=120)
    (result,) = json.loads(stdout)["results"]
    assert (process.returncode, result["status"]) == (5, "timeout")
    assert state["Running"] is False
    assert result["duration"] < 8 + LATE
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun"
    assert ours(repo) == []


@pytest.mark.extra
def test_open_network_is_filtered(repo: Path) -> None:
    """The host is closed to the worker, also at its gateway's address."""
    ask = "ip route | awk '/default/ {print $3}'"
    reach = f"timeout 3 bash -c 'echo > /dev/tcp/'$({ask})'/22'; echo code $?; ls /sys/class/net"
    done = orchestrator(
        "parallel", "--agent-cli", "shell", "--network", "open", "--transfer", "streams",
        reach, "--workers", "1", "--json", cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = (Path(done.results[1]["log"]) / "stdout.log").read_text().split()
    assert "eth0" in said
    assert "0" not in said
    assert ours(repo) == []


def test_checks_see_the_commit_alone_and_hand_in_their_own_findings(repo: Path) -> None:
    """Each check writes where no other one does, and all of them see one checkout."""
    (repo / ".gitignore").write_text("ignored\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "ignores")
    sarif = '{"version": "2.1.0", "runs": []}'
    checks = (
        f"echo '{sarif}' > \"$ORCHESTRATOR_SARIF\"; cat a.txt made; echo for later > left",
        'ls -A /run/orchestrator "${ORCHESTRATOR_SARIF%/*}"; cat left; ls ignored || exit 7',
    )
    done = orchestrator(
        *RUN, "echo new > made; touch ignored; ls /run/orchestrator", "--workers", "1", "--json",
        *(word for check in checks for word in ("--check", check)), "--setup", "true", cwd=repo,
    )  # fmt: skip
    (result,) = done.results.values()
    first, second = result["checks"]
    assert (first["passed"], second["passed"], second["exit_code"]) == (True, False, 7)
    assert "new\n" in Path(first["log"]).read_text()
    said = Path(second["log"]).read_text().splitlines()
    assert said[1:5] == ["/run/orchestrator:", "check", "", "/run/orchestrator/check:"]
    assert said[5] == "for later"
    log = Path(result["log"])
    assert [path.name for path in sorted(log.glob("*.sarif"))] == ["check-1.sarif"]
    assert "check" not in (log / "stdout.log").read_text()
    assert ours(repo) == []


@pytest.mark.extra
@pytest.mark.skipif(os.getuid() != 0, reason="only root hides /proc")
@pytest.mark.parametrize("transfer", ["mounts", "streams"])
def test_command_needs_no_proc(repo: Path, transfer: str) -> None:
    """As on a system that is not Linux: the engine's machine is asked for its addresses."""
    hidden = ("unshare", "--mount", "--propagation", "private",
              "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")  # fmt: skip
    run = ("parallel", "--agent-cli", "shell", "--network", "open", "--transfer", transfer)
    for words in (("doctor",), (*run, "--workers", "1", "--json", "echo x > f"), ("ls",),
                  ("parallel-cleanup",)):  # fmt: skip
        done = subprocess.run(
            (*hidden, sys.executable, "-m", "orchestrator", *words), cwd=repo, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0 or words == ("doctor",), done.stderr
        assert "internal error" not in done.stdout + done.stderr
    assert ours(repo) == []
