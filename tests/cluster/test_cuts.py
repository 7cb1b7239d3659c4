"""Runs whose connections to the API server break, and whose API server is restarted."""

import json
import random
import threading
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cluster.cut_api import CutApi
from tests.cluster.lab import Lab
from tests.cluster.runs import Start, present
from tests.support.live import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
WORKERS = 4


def results(process: Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=400)
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


def assert_right(found: list[dict[str, Any]], printed: str) -> None:
    assert [worker["exit_code"] for worker in found] == [3] * WORKERS, found
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
    assert cut.cuts >= 200
    assert present(lab, repo, "jobs") == []


def test_restarts_of_the_api_server_change_nothing(lab: Lab, repo: Path, start: Start) -> None:
    over = threading.Event()
    restarts = []

    def restart() -> None:
        while not over.wait(5):
            lab.stop_api_server()
            lab.start_api_server()
            restarts.append(1)

    task = "for n in $(seq 60); do seq 1 500; sleep 1; done; echo > done; exit 3"
    process = start("--workers", str(WORKERS), "--cpus", "1", task)
    # The cluster itself starts no pod in so short a time.
    eventually(lambda: begun(repo) == WORKERS, "the workers' start")
    thread = threading.Thread(target=restart)
    thread.start()
    try:
        found = results(process)
    finally:
        over.set()
        thread.join()
    assert_right(found, output(60, 500))
    assert len(restarts) >= 3
    assert present(lab, repo, "jobs") == []
