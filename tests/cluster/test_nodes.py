"""Nodes that lose their power, or are cut off, while workers run on them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.cluster.runs import Start, ended, job_of, present, running
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


def node_of(pod: dict[str, Any]) -> int:
    return int(pod["spec"]["nodeName"].removeprefix("node"))


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
