"""Workers whose pods are taken away: evicted, drained, or lost with their node."""

from pathlib import Path

import pytest

from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.runs import Start, ended, evict, job_of, present, running
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


def test_removed_job_is_an_error_of_the_engine(lab: Lab, repo: Path, start: Start) -> None:
    process = start("trap 'exit 0' TERM; echo up; sleep 300 & wait")
    running(lab, repo)
    (job,) = present(lab, repo, "jobs")
    lab.kubectl("delete", "job", "-n", NAMESPACE, job["metadata"]["name"])
    result = ended(process)
    assert (result["status"], result["reason"]) == ("failed", "engine_error")
    assert (result["attempts"], result["restarts"]) == (1, 0)
    assert "another program removed it" in result["message"]
