"""Containers of a pod that are out of memory, other than that of the task."""

import json
import time
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.runs import Start, ended, present, running
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SMALL = ("--cpus", "0.3", "--memory", "256m")
FILL = "python3 -c 'x = bytearray(10**9)'"


def container(lab: Lab, pod: dict[str, Any], name: str) -> str:
    """Return the id of a pod's container."""
    found = json.loads(
        lab.kubectl("get", "pod", "-n", NAMESPACE, pod["metadata"]["name"], "-o", "json")
    )
    (status,) = (one for one in found["status"]["containerStatuses"] if one["name"] == name)
    return str(status["containerID"])


def test_out_of_memory_in_setup_is_said(lab: Lab, repo: Path, start: Start) -> None:
    (repo / "orchestrator.yaml").write_text(f"setup:\n  - {json.dumps(FILL)}\n")
    result = ended(start(*SMALL, "echo never > never"))
    assert (result["status"], result["reason"]) == ("failed", "setup_failed"), result
    assert "needed more memory than its limit" in result["message"]
    assert result["files_modified"] == []
    assert present(lab, repo, "jobs") == []


@pytest.mark.parametrize("task", [f"exec {FILL}", f"{FILL}; exit 0"], ids=["first", "child"])
def test_out_of_memory_in_any_process_of_the_task_is_no_success(
    lab: Lab, repo: Path, start: Start, task: str
) -> None:
    result = ended(start(*SMALL, f"echo kept > kept; {task}"))
    assert (result["status"], result["reason"]) == ("failed", "oom"), result
    assert git(repo, "show", f"{result['branch']}:kept") == "kept"
    assert present(lab, repo, "jobs") == []


def begun(lab: Lab, repo: Path, start: Start) -> tuple[Popen[str], dict[str, Any]]:
    process = start(*SMALL, "echo up; seq 1 300000 > work; sleep 15")
    return process, running(lab, repo)


def test_out_of_memory_in_the_harvest_is_said(lab: Lab, repo: Path, start: Start) -> None:
    process, pod = begun(lab, repo, start)
    lab.limit_memory(container(lab, pod, "harvest-1"), 6_000_000)
    result = ended(process)
    assert (result["status"], result["reason"]) == ("partial", "harvest_refused"), result
    assert "needed more memory than its limit" in result["message"]
    # The second container of the harvest had memory.
    assert git(repo, "show", f"{result['branch']}:work").startswith("1\n2\n")
    assert present(lab, repo, "jobs") == []


def test_porter_without_memory_is_an_error_of_the_engine(
    lab: Lab, repo: Path, start: Start
) -> None:
    process, pod = begun(lab, repo, start)
    porter = container(lab, pod, "porter")

    def has_ended() -> bool:
        time.sleep(1)
        with suppress(ValueError):  # it has ended
            lab.limit_memory(porter)
        return process.poll() is not None

    eventually(has_ended, "the end of the run")
    result = ended(process)
    assert (result["status"], result["reason"]) == ("failed", "engine_error"), result
    assert "out of memory" in result["message"]
    assert (result["attempts"], result["files_modified"]) == (1, [])
    assert present(lab, repo, "jobs") == []
