"""Tests of runs that are killed, detached, or stopped by another process."""

import hashlib
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import REPOSITORY
from orchestrator.state.record.states import WorkerState
from orchestrator.state.run_directory import RunDirectory
from tests.support.cli import orchestrator, start
from tests.support.daemon import touch_in_workers
from tests.support.live import LATE, PATIENCE, eventually, states
from tests.support.repository import git

pytestmark = pytest.mark.docker
PARALLEL = ("parallel", "--agent-cli", "shell", "--network", "none")
TASK = "echo begun; echo begun >> runs.txt; {wait}; echo done; echo done >> runs.txt"
UNTIL_GO = TASK.format(wait="until [ -e /tmp/go ]; do sleep 0.1; done")
"""A task that ends after the test has created a file in its container."""


def ours(repo: Path) -> list[str]:
    engine = DockerEngine()
    try:
        found = engine.leftovers({REPOSITORY: f"{repo}/.git"})
    finally:
        engine.close()
    return [f"{left.kind} {left.id}" for left in found]


def killed_while_running(repo: Path, *arguments: str) -> None:
    """Start a run, and kill its process once the first worker runs."""
    process = start(
        *PARALLEL, *arguments, cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    eventually(lambda: log_of(repo, 1).is_file() and log_of(repo, 1).read_text(), "its output")
    process.send_signal(signal.SIGKILL)
    process.wait()


def resumed(repo: Path, client: docker.APIClient) -> dict[int, Any]:
    """Resume a run, let its worker end once the run is live, and return the results."""
    process = start("resume", "--json", cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    is_live = RunDirectory(log_of(repo, 1).parent.parent).is_live
    eventually(lambda: process.poll() is not None or is_live(), "the resumed run")
    touch_in_workers(client, repo, "/tmp/go")
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr.decode()
    return {result["worker_id"]: result for result in json.loads(stdout)["results"]}


def log_of(repo: Path, worker: int) -> Path:
    (run,) = (repo / ".git" / "orchestrator" / "runs").glob("*/")
    return run / f"worker-{worker}" / "stdout.log"


def test_a_killed_run_is_resumed_and_no_task_runs_twice(
    repo: Path, client: docker.APIClient
) -> None:
    tasks = [f"--task={one}" for one in (UNTIL_GO, *[TASK.format(wait="sleep 1")] * 2)]
    killed_while_running(repo, *tasks, "--workers", "2")
    assert len(ours(repo)) >= 1
    waited = orchestrator("wait", cwd=repo)
    assert (waited.returncode, "orchestrator resume" in waited.stderr) == (7, True)

    results = resumed(repo, client)
    assert [result["status"] for result in results.values()] == ["success"] * 3
    for number, result in results.items():
        assert git(repo, "show", f"architect/parallel-{number}:runs.txt") == "begun\ndone"
        assert (Path(result["log"]) / "stdout.log").read_text() == "begun\ndone\n"
    assert ours(repo) == []
    assert orchestrator("wait", "--json", cwd=repo).results == results


@pytest.mark.extra
def test_resumed_worker_keeps_its_deadline(repo: Path) -> None:
    killed_while_running(
        repo, TASK.format(wait="sleep 60"), "--workers", "1", "--timeout-per-worker", "6",
        "--grace", "0",
    )  # fmt: skip
    done = orchestrator("resume", "--json", cwd=repo)
    assert done.returncode == 5
    assert done.results[1]["status"] == "timeout"
    assert 5 < done.results[1]["duration"] < 6 + LATE
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun"


@pytest.mark.extra
def test_resumed_run_still_has_its_secrets(repo: Path, client: docker.APIClient) -> None:
    env = {"THE_TOKEN": "correct-horse-battery"}
    read = 'cat "$ORCHESTRATOR_SECRETS/THE_TOKEN" | sha256sum; echo "$PLAIN"'
    command = (
        "--task", UNTIL_GO, "--task", read, "--workers", "1",
        "--secret", "THE_TOKEN", "--env", "PLAIN=in the open",
    )  # fmt: skip
    process = start(
        *PARALLEL, *command, cwd=repo, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    process.send_signal(signal.SIGKILL)
    process.wait()
    second = Path(resumed(repo, client)[2]["log"])
    log = (second / "stdout.log").read_text()
    assert log.split()[0] == hashlib.sha256(env["THE_TOKEN"].encode()).hexdigest()
    assert "in the open" in log
    record = (second.parent / "run.json").read_text()
    assert "in the open" not in record


def test_detached_run_outlives_its_command(repo: Path, client: docker.APIClient) -> None:
    task = "until [ -e /tmp/go ]; do sleep 0.1; done"
    begun = orchestrator(*PARALLEL, task, "--workers", "1", "--detach", cwd=repo)
    assert begun.returncode == 0, begun.stderr
    run_id = begun.stdout.strip()
    assert (repo / ".git" / "orchestrator" / "runs" / run_id / "run.json").is_file()
    (listed,) = json.loads(orchestrator("ls", "--json", cwd=repo).stdout)["runs"]
    assert (listed["run_id"], listed["state"]) == (run_id, "running")
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    touch_in_workers(client, repo, "/tmp/go")
    done = orchestrator("wait", run_id, "--json", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert done.results[1]["status"] == "success"
    assert ours(repo) == []


@pytest.mark.extra
def test_stop_ends_the_workers_of_another_process(repo: Path) -> None:
    tasks = [f"--task={TASK.format(wait=wait)}" for wait in ("sleep 100", "sleep 101")]
    begun = orchestrator(
        *PARALLEL, *tasks, "--workers", "1", "--grace", "0", "--detach", cwd=repo
    )  # fmt: skip
    assert begun.returncode == 0, begun.stderr
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    stopped = orchestrator("stop", "--all", cwd=repo)
    assert stopped.returncode == 0, stopped.stderr
    done = orchestrator("wait", "--json", cwd=repo)
    assert [result["reason"] for result in done.results.values()] == ["cancelled"] * 2
    assert ours(repo) == []
    refused = orchestrator("stop", "1", cwd=repo)
    assert (refused.returncode, "has ended" in refused.stderr) == (3, True)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.variants("True")
@pytest.mark.extra
def test_deleted_worktree_is_created_again(
    repo: Path, client: docker.APIClient, killed: bool
) -> None:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = (*PARALLEL, "--json", "--workers", "1", UNTIL_GO)
    process = start(*command, cwd=repo, **streams)
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    shutil.rmtree(repo / ".architect-parallel-1")
    if killed:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (result,) = resumed(repo, client).values()
    else:
        touch_in_workers(client, repo, "/tmp/go")
        (result,) = json.loads(process.communicate(timeout=PATIENCE)[0])["results"]
    assert (result["status"], result["files_modified"]) == ("success", ["runs.txt"])
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun\ndone"
    assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""
    assert (repo / ".architect-parallel-1" / "runs.txt").read_text() == "begun\ndone\n"
    assert git(repo, "worktree", "prune", "--dry-run", "-v") == ""


@pytest.mark.extra
def test_run_is_resumed_by_one_process_only(repo: Path, client: docker.APIClient) -> None:
    killed_while_running(repo, UNTIL_GO, "--workers", "1")
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [start("resume", cwd=repo, **streams) for _ in range(2)]
    # The worker ends only after one of the processes has been refused.
    eventually(lambda: any(process.poll() is not None for process in both), "a refusal")
    touch_in_workers(client, repo, "/tmp/go")
    said = [process.communicate()[1].decode() for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes == [0, 3], said
    assert any("is in progress in process" in text for text in said)
    assert git(repo, "show", "architect/parallel-1:runs.txt") == "begun\ndone"
