"""Workers whose pods are taken away: evicted, drained, or lost with their node."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import BASE_IMAGE, NAMESPACE, Lab
from tests.cluster.runs import Start, ended, evict, job_of, node_of, present, running
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_drained_worker_is_started_again_once(lab: Lab, repo: Path, start: Start) -> None:
    task = "trap 'exit 0' TERM; echo up; echo there > here; sleep 15 & wait"
    process = start(task)
    evict(lab, running(lab, repo))
    result = ended(process)
    assert (result["status"], result["attempts"], result["restarts"]) == ("success", 2, 1)
    assert git(repo, "show", f"{result['branch']}:here") == "there"
    assert present(lab, repo, "jobs") == []


def test_worker_that_is_drained_during_its_setup_is_started_again(
    lab: Lab, repo: Path, start: Start
) -> None:
    (repo / "orchestrator.yaml").write_text("setup:\n  - touch made && sleep 20\n")
    process = start("echo there > here; ls made")

    def is_set_up() -> list[Path]:
        time.sleep(0.5)
        return [*(repo / ".git/orchestrator").glob("runs/*/worker-1/setup*.log")]

    eventually(is_set_up, "the setup")
    (pod,) = present(lab, repo, "pods")
    evict(lab, pod)
    assert_made_again(lab, repo, ended(process))


def test_worker_that_is_drained_twice_fails(lab: Lab, repo: Path, start: Start) -> None:
    process = start("trap 'exit 0' TERM; echo up; sleep 300 & wait")
    first = running(lab, repo)
    evict(lab, first)
    evict(lab, running(lab, repo, but=job_of(first)))
    result = ended(process)
    assert (result["status"], result["reason"]) == ("failed", "engine_error"), result
    assert (result["attempts"], result["restarts"]) == (2, 1)
    assert "lost" in result["message"]
    assert present(lab, repo, "jobs") == []


def test_worker_that_fills_tmp_is_not_started_again(lab: Lab, repo: Path, start: Start) -> None:
    # Before version 1.22, a file system in memory has no size, and the node looks every 10 s.
    task = "trap 'exit 0' TERM; head -c 200000000 /dev/zero > /tmp/big; sleep 60 & wait"
    (repo / "orchestrator.yaml").write_text("container:\n  tmp: 64m\n")
    result = ended(start(task))
    assert (result["status"], result["reason"], result["restarts"]) == ("failed", "disk", 0)
    assert "evicted" in result["message"]
    assert present(lab, repo, "jobs") == []


def test_kubelet_that_is_away_for_some_seconds_changes_nothing(
    lab: Lab, repo: Path, start: Start
) -> None:
    task = "for n in $(seq 20); do echo $n; sleep 1; done; echo there > here; exit 3"
    process = start(task)
    node = node_of(running(lab, repo))
    for _ in range(2):
        lab.stop_kubelet(node)
        time.sleep(5)
        lab.start_kubelet(node)
        time.sleep(2)
    result = ended(process)
    assert (result["exit_code"], result["attempts"], result["restarts"]) == (3, 1, 0), result
    assert result["files_modified"] == ["here"]
    printed = "".join(f"{n}\n" for n in range(1, 21))
    assert (Path(result["log"]) / "stdout.log").read_text() == printed
    assert present(lab, repo, "jobs") == []


def test_task_of_a_job_at_its_deadline_never_runs_again(lab: Lab, repo: Path, start: Start) -> None:
    process = start("trap 'exit 0' TERM; echo up; sleep 300 & wait")
    running(lab, repo)
    (job,) = present(lab, repo, "jobs")
    name, late = job["metadata"]["name"], json.dumps({"spec": {"activeDeadlineSeconds": 1}})
    lab.kubectl("patch", "job", "-n", NAMESPACE, name, "--type=merge", "-p", late)
    result = ended(process)
    assert (result["status"], result["reason"]) == ("failed", "engine_error"), result
    assert (result["attempts"], result["restarts"]) == (1, 0)
    assert "before its deadline" in result["message"]


def test_removed_job_is_an_error_of_the_engine(lab: Lab, repo: Path, start: Start) -> None:
    process = start("trap 'exit 0' TERM; echo up; sleep 300 & wait")
    running(lab, repo)
    (job,) = present(lab, repo, "jobs")
    lab.kubectl("delete", "job", "-n", NAMESPACE, job["metadata"]["name"])
    result = ended(process)
    assert (result["status"], result["reason"]) == ("failed", "engine_error")
    assert (result["attempts"], result["restarts"]) == (1, 0)
    assert "another program removed it" in result["message"]


AGAIN = "trap 'exit 0' TERM; echo up; echo there > here; sleep 15 & wait"


def assert_made_again(lab: Lab, repo: Path, result: dict[str, Any]) -> None:
    assert (result["status"], result["attempts"], result["restarts"]) == ("success", 2, 1), result
    assert git(repo, "show", f"{result['branch']}:here") == "there"
    assert present(lab, repo, "jobs") == []


def test_worker_of_a_node_without_memory_is_started_again(
    lab: Lab, repo: Path, start: Start
) -> None:
    process = start(AGAIN.replace("15", "60"))
    first = running(lab, repo)
    lab.want_memory(node_of(first), "99%")
    try:
        eventually(
            lambda: all(job_of(pod) != job_of(first) for pod in present(lab, repo, "pods")),
            "the eviction",
        )
    finally:
        lab.want_memory(node_of(first), None)
    assert_made_again(lab, repo, ended(process))
    log = (repo / ".git/orchestrator").glob("runs/*/worker-1.attempt-1/attempt.json")
    assert "low on resource: memory" in json.loads(next(log).read_text())["message"]


@pytest.fixture
def preempt(lab: Lab) -> Iterator[Callable[[int], None]]:
    """Return a function that starts a pod of high priority, which needs most of a node."""
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "first"},
        "value": 1000,
    }
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(priority))

    def start_pod(node: int) -> None:
        capacity = ("get", "node", f"node{node}", "-o", "jsonpath={.status.allocatable.cpu}")
        asked = {"cpu": f"{1000 * int(lab.kubectl(*capacity)) - 100}m"}
        container = {
            "name": "main",
            "image": BASE_IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sleep", "infinity"],
            "resources": {"requests": asked},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "first", "namespace": "default"},
            "spec": {
                "priorityClassName": "first",
                "nodeSelector": {"kubernetes.io/hostname": f"node{node}"},
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        phase = ("get", "pod", "first", "-n", "default", "-o", "jsonpath={.status.phase}")
        eventually(lambda: lab.kubectl(*phase) == "Running", "the pod of high priority")

    yield start_pod
    lab.kubectl("delete", "pod", "first", "-n", "default", "--ignore-not-found")
    lab.kubectl("delete", "priorityclass", "first")


def test_preempted_worker_is_started_again(
    lab: Lab, repo: Path, start: Start, preempt: Callable[[int], None]
) -> None:
    process = start(AGAIN)
    preempt(node_of(running(lab, repo)))
    lab.kubectl("delete", "pod", "first", "-n", "default")
    assert_made_again(lab, repo, ended(process))
