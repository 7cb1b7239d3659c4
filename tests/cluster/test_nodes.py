"""Nodes that lose their power, or are cut off, while workers run on them."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.runs import Start, ended, job_of, node_of, present, running
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
TASK = "echo up; sleep 40; hostname > of; echo over"


@pytest.fixture(autouse=True)
def whole(lab: Lab) -> Iterator[None]:
    """Let all nodes be ready again at the end."""
    if len(lab.nodes) < 2:
        pytest.skip("a cluster of one node has no other node for a pod")
    yield
    for node in lab.nodes:
        lab.plug(node)

    def are_ready() -> bool:
        time.sleep(1)
        return lab.kubectl("get", "nodes", "--no-headers").count(" Ready") == len(lab.nodes)

    eventually(are_ready, "all nodes")


def test_worker_of_a_node_without_power_starts_again_on_another(
    lab: Lab, repo: Path, start: Start
) -> None:
    process = start(TASK)
    first = running(lab, repo)
    lab.cut_power(node_of(first))
    try:
        result = ended(process)
    finally:
        lab.start_node(node_of(first))
    assert (result["status"], result["attempts"], result["restarts"]) == ("success", 2, 1)
    assert git(repo, "show", f"{result['branch']}:of") != first["metadata"]["name"]
    assert present(lab, repo, "jobs") == []


def test_node_that_is_back_after_20_s_was_never_away(lab: Lab, repo: Path, start: Start) -> None:
    process = start("for n in $(seq 40); do echo $n; sleep 1; done; hostname > of; exit 3")
    first = running(lab, repo)
    lab.unplug(node_of(first))
    time.sleep(20)
    lab.plug(node_of(first))
    result = ended(process)
    assert (result["status"], result["exit_code"]) == ("failed", 3), result
    assert (result["attempts"], result["restarts"]) == (1, 0)
    assert git(repo, "show", f"{result['branch']}:of") == first["metadata"]["name"]
    said = (Path(result["log"]) / "stdout.log").read_text()
    assert said == "".join(f"{n}\n" for n in range(1, 41))


def test_late_answer_of_a_node_is_never_taken(lab: Lab, repo: Path, start: Start) -> None:
    process = start(TASK)
    first = running(lab, repo)
    lab.unplug(node_of(first))
    second = running(lab, repo, but=job_of(first))
    lab.plug(node_of(first))
    result = ended(process)
    assert (result["status"], result["attempts"], result["restarts"]) == ("success", 2, 1)
    assert git(repo, "show", f"{result['branch']}:of") == second["metadata"]["name"]


def test_six_workers_are_spread_and_those_of_a_drained_node_start_again(
    lab: Lab, repo: Path, start: Start
) -> None:
    over, claims = threading.Event(), []

    def look() -> None:
        while not over.wait(2):
            kinds = "persistentvolumeclaims,persistentvolumes"
            claims.append(lab.kubectl("get", kinds, "-A", "-o", "name"))

    watch = threading.Thread(target=look)
    watch.start()
    small = ("--workers", "6", "--cpus", "0.5", "--memory", "256m")
    task = "trap 'exit 0' TERM; hostname > of; sleep 40 & wait"
    process = start(*small, *(word for _ in range(6) for word in ("--task", task)))

    def placed() -> list[int]:
        time.sleep(0.5)
        pods = [pod for pod in present(lab, repo, "pods") if pod["status"]["phase"] == "Running"]
        return [node_of(pod) for pod in pods] if len(pods) == 6 else []

    nodes = eventually(placed, "six pods")
    try:
        # This version of the kubelet needs more than a minute to remove a pod.
        flags = ("--delete-emptydir-data", "--ignore-daemonsets", "--timeout=240s")
        lab.kubectl("drain", "node2", *flags)
        out, err = process.communicate(timeout=400)
    finally:
        lab.kubectl("uncordon", "node2")
        over.set()
        watch.join()
    assert sorted(nodes.count(node) for node in lab.nodes) == [2, 2, 2]
    found = json.loads(out)["results"]
    assert "Traceback" not in err
    assert [worker["status"] for worker in found] == ["success"] * 6, err
    assert sorted(worker["restarts"] for worker in found) == [0, 0, 0, 0, 1, 1]
    assert all(worker["attempts"] == worker["restarts"] + 1 for worker in found)
    assert len(claims) > 5
    assert "".join(claims) == ""
    assert lab.kubectl("get", "pvc", "-n", NAMESPACE, "-o", "name") == ""
