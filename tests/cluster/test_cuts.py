"""Runs whose connections to the API server break, and whose API server is restarted."""

import json
import random
import sys
import threading
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cluster.cut_api import CutApi
from tests.cluster.lab import Lab
from tests.cluster.runs import Start, begin, present, tell
from tests.support.live import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1600)]
WORKERS = 4


def results(process: Popen[str], seconds: float = 400) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err
    found: list[dict[str, Any]] = json.loads(out)["results"]
    return found


def output(turns: int, lines: int) -> str:
    """Return what a task prints that counts to `lines`, as often as `turns`."""
    return "".join(f"{n}\n" for n in range(1, lines + 1)) * turns


def begun(repo: Path) -> int:
    """Return how many workers have written something."""
    time.sleep(0.5)
    logs = (repo / ".git/orchestrator").glob("runs/*/worker-*/stdout.log")
    return sum(log.stat().st_size > 0 for log in logs)


def assert_right(found: list[dict[str, Any]], printed: str, workers: int = WORKERS) -> None:
    assert [worker["exit_code"] for worker in found] == [3] * workers, found
    assert {worker["status"] for worker in found} == {"failed"}
    assert {worker["attempts"] for worker in found} == {1}
    for worker in found:
        assert (Path(worker["log"]) / "stdout.log").read_text() == printed
        assert worker["files_modified"] == ["done"]


def test_exit_code_and_output_survive_200_cuts_of_streams(
    lab: Lab, repo: Path, cut: CutApi, start: Start
) -> None:
    drawn = random.Random(12)
    # What arrives of a frame of 32 KiB is sent again, so shorter pieces bring nothing forward.
    cut.draw = lambda: drawn.randrange(100, 130_000)
    task = "for n in $(seq 20); do seq 1 40000; sleep 1; done; echo > done; exit 3"
    process = start("--workers", str(WORKERS), task, kubeconfig=cut.kubeconfig)
    found = results(process)
    assert_right(found, output(20, 40_000))
    assert cut.cuts.total() >= 200
    assert present(lab, repo, "jobs") == []


@pytest.mark.extra
def test_exit_codes_of_40_tasks_survive_5_cuts_each(
    lab: Lab, repo: Path, cut: CutApi, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = random.Random(40)
    cut.draw = lambda: drawn.randrange(100, 130_000)
    task = "for n in $(seq 5); do seq 1 20000; sleep 1; done; echo > done; exit 3"
    small = ("--workers", "10", "--cpus", "0.3", "--memory", "256m")
    given = (word for _ in range(40) for word in ("--task", task))
    process = start(*small, *given, kubeconfig=cut.kubeconfig)
    assert_right(results(process, 1500), output(5, 20_000), 40)
    streams = [count for pod, count in cut.cuts.items() if pod]
    tell(capsys, f"{sum(streams)} cuts in 40 tasks, at least {min(streams)} in each")
    assert len(streams) == 40
    assert min(streams) >= 5
    assert present(lab, repo, "jobs") == []


@pytest.mark.variants("4")
@pytest.mark.parametrize("workers", [4, 12])
def test_restarts_of_the_api_server_change_nothing(
    lab: Lab, repo: Path, start: Start, workers: int
) -> None:
    over = threading.Event()
    restarts = []

    def restart() -> None:
        while not over.wait(5):
            lab.stop_api_server()
            lab.start_api_server()
            restarts.append(1)

    task = "for n in $(seq 60); do seq 1 500; sleep 1; done; echo > done; exit 3"
    small = ("--workers", str(workers), "--cpus", "0.2", "--memory", "256m")
    process = start(*small, task)
    # The cluster itself starts no pod in so short a time.
    eventually(lambda: begun(repo) == workers, "the workers' start")
    thread = threading.Thread(target=restart)
    thread.start()
    try:
        found = results(process)
    finally:
        over.set()
        thread.join()
    assert_right(found, output(60, 500), workers)
    assert len(restarts) >= 3
    assert present(lab, repo, "jobs") == []


@pytest.mark.extra
def test_bursts_of_output_are_complete_though_the_client_is_cut_off(
    lab: Lab, repo: Path, cut: CutApi, start: Start
) -> None:
    """The nodes of the lab keep two logs of 1 MB of a container: nothing is read from them."""
    lines = 1_250_000  # 8.6 MB each time
    burst = f"seq 1 {lines}; seq 1 {lines} | tac >&2; sleep 12"
    process = start(f"echo up; for n in 1 2 3; do {burst}; done; exit 3", kubeconfig=cut.kubeconfig)
    eventually(lambda: begun(repo) == 1, "the task's start")
    for _ in range(3):
        cut.is_down = True
        time.sleep(10)
        cut.is_down = False
        time.sleep(5)
    (found,) = results(process)
    assert (found["exit_code"], found["attempts"]) == (3, 1), found
    counted = [f"{n}\n" for n in range(1, lines + 1)]
    log = Path(found["log"])
    assert (log / "stdout.log").read_text() == "up\n" + "".join(counted) * 3
    assert (log / "stderr.log").read_text() == "".join(reversed(counted)) * 3
    assert present(lab, repo, "jobs") == []


@pytest.mark.extra
def test_run_without_an_api_server_can_be_resumed(
    lab: Lab, repo: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start("echo up; sleep 20; echo x > done; exit 3")
    eventually(lambda: begun(repo) == 1, "the task's start")
    lab.stop_api_server()
    stopped = time.monotonic()
    try:
        (left,) = results(process)
        waited = time.monotonic() - stopped
    finally:
        lab.start_api_server()
    tell(capsys, f"exit code {process.returncode} after {waited:.0f} s: {left['message']}")
    assert (process.returncode, left["status"], left["reason"]) == (7, "failed", "engine_error")
    assert "does not answer" in left["message"]
    assert "orchestrator resume" in left["message"]
    assert waited > 120
    settings = lab.directory / "kubeconfig-runner"
    resumed = begin(repo, settings, sys.executable, "-m", "orchestrator", "resume", "--json")
    (found,) = results(resumed)
    assert (found["exit_code"], found["attempts"], found["files_modified"]) == (3, 1, ["done"])
    assert (Path(found["log"]) / "stdout.log").read_text() == "up\n"
    assert present(lab, repo, "jobs") == []
