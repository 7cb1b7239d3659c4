"""Many tasks on several nodes: with failures of everything, and how much faster than on one node.

These take minutes and a quiet machine: `--every-variant` runs them.
"""

import json
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.cluster.runs import COMMAND, begin, present, tell
from tests.cluster.test_nodes import whole  # noqa: F401 - of every test here
from tests.support.cli import cpu_seconds, high_water
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.extra, pytest.mark.timeout(1800)]
SMALL = ("--cpus", "0.5", "--memory", "256m")


def tasks(number: int, command: str) -> list[str]:
    """Return options for so many tasks; `N` in the command is the number of the task."""
    return [word for n in range(1, number + 1)
            for word in ("--task", re.sub(r"\bN\b", str(n), command))]  # fmt: skip


def results(out: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out)["results"]
    return found


def shares(found: list[dict[str, Any]]) -> str:
    """Return the mean seconds of the steps of all workers."""
    steps = ("prepare", "start", "agent", "stop", "harvest", "update")
    means = {step: sum(w["timings"][step] for w in found) / len(found) for step in steps}
    return "mean worker: " + ", ".join(f"{step} {mean:.1f} s" for step, mean in means.items())


def test_60_tasks_survive_a_dead_node_a_cut_off_node_and_a_killed_client(
    lab: Lab, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = lab.directory / "kubeconfig-runner"
    given = tasks(60, "echo N > out-N; hostname > of-N; sleep 15; exit 3")
    process = begin(repo, settings, *COMMAND, "--workers", "10", *SMALL, *given)
    began = time.monotonic()

    def done() -> int:
        time.sleep(1)
        return len([*(repo / ".git/orchestrator/runs").glob("*/worker-*/result.json")])

    def cut_off() -> None:
        lab.unplug(2)
        time.sleep(20)
        lab.plug(2)

    eventually(lambda: len(present(lab, repo, "pods")) >= 6, "the first pods")
    lab.cut_power(3)
    blink = threading.Thread(target=cut_off)
    blink.start()
    eventually(lambda: done() >= 5, "the first results")
    process.kill()
    process.communicate()
    resumed = begin(repo, settings, sys.executable, "-m", "orchestrator", "resume", "--json")
    try:
        out, err = resumed.communicate(timeout=1500)
    finally:
        blink.join()
        lab.start_node(3)
    found = results(out)
    seconds = time.monotonic() - began
    assert "Traceback" not in err
    assert [worker["exit_code"] for worker in found] == [3] * 60
    assert max(worker["restarts"] for worker in found) == 1
    for number, worker in enumerate(found, start=1):
        assert worker["attempts"] == worker["restarts"] + 1, worker
        assert git(repo, "show", f"{worker['branch']}:out-{number}") == str(number)
    assert present(lab, repo, "jobs") == []
    again = sum(worker["restarts"] for worker in found)
    tell(capsys, f"60 of 60 right, {again} made again, {seconds:.0f} s")


@pytest.mark.parametrize("nodes", [1, 3])
def test_speed_up_of_30_tasks_of_20_s(
    lab: Lab, repo: Path, capsys: pytest.CaptureFixture[str], nodes: int
) -> None:
    settings = lab.directory / "kubeconfig-runner"
    closed = [f"node{node}" for node in lab.nodes][nodes:]
    for node in closed:
        lab.kubectl("cordon", node)
    try:
        began = time.monotonic()
        command = (*COMMAND, "--workers", "10", "--cpus", "1", "--memory", "1g")
        process = begin(repo, settings, *command, *tasks(30, "echo N > out; sleep 20"))
        out, err = process.communicate(timeout=1500)
        seconds = time.monotonic() - began
    finally:
        for node in closed:
            lab.kubectl("uncordon", node)
    found = results(out)
    assert {worker["status"] for worker in found} == {"success"}, err
    told = f"30 tasks of 20 s on {nodes} nodes, 10 at once: {seconds:.1f} s"
    tell(capsys, f"{told}; {shares(found)}")


@pytest.mark.parametrize("nodes", [1, 3])
def test_30_workers_at_once(
    lab: Lab, repo: Path, capsys: pytest.CaptureFixture[str], nodes: int
) -> None:
    """Print what the client needs, and how many pods find room at once."""
    settings = lab.directory / "kubeconfig-runner"
    closed = [f"node{node}" for node in lab.nodes][nodes:]
    for node in closed:
        lab.kubectl("cordon", node)
    given = ("--workers", "30", "--cpus", "0.1", "--memory", "256m")
    began, cpu, memory, most = time.monotonic(), 0.0, 0, 0
    command = (*COMMAND, *given, *tasks(30, "echo N > out; sleep 60"))
    process = begin(repo, settings, *command, ORCHESTRATOR_MAX_WORKTREES="30")
    try:
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(process.communicate, timeout=1500)
            while not answer.done():
                cpu = max(cpu, cpu_seconds(process.pid))
                memory = max(memory, high_water(process.pid))
                pods = present(lab, repo, "pods")
                most = max(most, sum(pod["status"]["phase"] == "Running" for pod in pods))
                time.sleep(1)
        seconds = time.monotonic() - began
    finally:
        process.kill()
        for node in closed:
            lab.kubectl("uncordon", node)
    out, err = answer.result()
    found = results(out)
    assert [worker["status"] for worker in found] == ["success"] * 30, err
    for number, worker in enumerate(found, start=1):
        assert git(repo, "show", f"{worker['branch']}:out") == str(number)
    assert present(lab, repo, "jobs") == []
    told = f"30 workers on {nodes} nodes: {seconds:.0f} s, {most} pods at once; {shares(found)}"
    tell(capsys, f"{told}; client: {cpu:.0f} s of CPU, {memory / 2**20:.0f} MiB")
    if nodes == 3:
        assert most == 30
