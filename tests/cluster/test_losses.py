"""Workers whose pods are taken away: evicted, drained, or lost with their node."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from orchestrator.engine.labels import REPOSITORY
from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.test_command import started
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


Start = Callable[..., Popen[str]]


@pytest.fixture
def start(lab: Lab, repo: Path) -> Iterator[Start]:
    """Return a function that starts a run, which is stopped if the test fails."""
    made: list[Popen[str]] = []

    def begin(*arguments: str) -> Popen[str]:
        made.append(started(lab, repo, *arguments))
        return made[-1]

    yield begin
    for process in made:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)


def present(lab: Lab, repo: Path, kind: str) -> list[dict[str, Any]]:
    """Return the objects of a repository's workers that nobody has deleted."""
    found = json.loads(lab.kubectl("get", kind, "-n", NAMESPACE, "-o", "json"))["items"]
    return [
        thing
        for thing in found
        if thing["metadata"].get("annotations", {}).get(REPOSITORY, "").startswith(str(repo))
        and "deletionTimestamp" not in thing["metadata"]
    ]


def job_of(pod: dict[str, Any]) -> str:
    """Return the name of a pod's Job."""
    return str(pod["metadata"]["labels"]["job-name"])


def evict(lab: Lab, pod: dict[str, Any]) -> None:
    """Evict a pod as `kubectl drain` does."""
    name = pod["metadata"]["name"]
    described = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    lab.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(described))


def running(lab: Lab, repo: Path, *, but: str = "") -> dict[str, Any]:
    """Wait until the command has written its first line, and return its pod.

    A Job replaces a pod that was taken away; `but` is the name of such a Job.
    """
    found: list[dict[str, Any]] = []

    def has_begun() -> bool:
        time.sleep(0.3)
        logs = [*(repo / ".git/orchestrator").glob("**/worker-1/stdout.log")]
        found[:] = [pod for pod in present(lab, repo, "pods") if job_of(pod) != but]
        with suppress(FileNotFoundError):  # the next attempt has another directory
            return bool(found) and any(log.read_bytes() for log in logs)
        return False

    eventually(has_begun, "the task's start")
    (pod,) = found
    return pod


def ended(process: Popen[str]) -> dict[str, Any]:
    """Return the result of the only worker."""
    out, err = process.communicate(timeout=280)
    assert "Traceback" not in err
    (result,) = json.loads(out)["results"]
    return {**result, "err": err}


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
