"""Tests of the command line with the engine `kubernetes`."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import NAMESPACE, Lab
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

COMMAND = (
    sys.executable, "-m", "orchestrator", "parallel", "--engine", "kubernetes",
    "--agent-cli", "shell", "--network", "none", "--workers", "1", "--json",
)  # fmt: skip
UNENFORCED = ("--allow-unenforced", "network,swap,tmp,tmp_inodes")


def started(
    lab: Lab,
    repo: Path,
    *arguments: str,
    allowed: tuple[str, ...] = UNENFORCED,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a run by a user who has the rights of the role and no others."""
    return subprocess.Popen(
        [*COMMAND, *allowed, *arguments],
        cwd=repo, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(repo.parent)}
        | {"KUBECONFIG": str(lab.directory / "kubeconfig-runner"), **(env or {})},
    )  # fmt: skip


def jobs(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lab.kubectl("get", "jobs", "-A", "-o", "json"))[
        "items"
    ]
    return found


def test_work_comes_back_on_a_branch(lab: Lab, repo: Path) -> None:
    process = started(lab, repo, "echo here > there; exit 3")
    out, err = process.communicate(timeout=200)
    (result,) = json.loads(out)["results"]
    assert (result["status"], result["exit_code"]) == ("failed", 3), err
    assert git(repo, "show", f"{result['branch']}:there") == "here"
    assert "network" in result["limits_unenforced"]
    eventually(lambda: not jobs(lab), "the Job's end")


def waits(repo: Path) -> str:
    """Return the reasons for which workers of all runs waited for the cluster."""
    events = [file.read_text() for file in repo.glob(".git/orchestrator/runs/*/events.ndjson")]
    lines = [json.loads(line) for text in events for line in text.splitlines()]
    return " ".join(line["reason"] for line in lines if line["type"] == "worker_waiting")


def test_worker_that_finds_no_room_can_be_stopped(lab: Lab, repo: Path) -> None:
    process = started(lab, repo, "--memory", "900g", "true")
    eventually(lambda: jobs(lab), "the Job")
    eventually(lambda: "Insufficient memory" in waits(repo), "the scheduler's message")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    (result,) = json.loads(out)["results"]
    assert (result["status"], result["reason"]) == ("failed", "cancelled"), err
    assert process.returncode == 143
    eventually(lambda: not jobs(lab), "the Job's end")


def test_missing_image_is_an_error_that_names_it(lab: Lab, repo: Path) -> None:
    process = started(lab, repo, "--image", "nowhere.invalid/image:1", "true")
    eventually(lambda: "ErrImagePull" in waits(repo), "the node's message")
    out, err = process.communicate(timeout=250)
    said = out + err
    assert process.returncode != 0
    assert "nowhere.invalid/image:1" in said
    assert "Traceback" not in said
    eventually(lambda: not jobs(lab), "the Job's end")


def test_quota_is_waited_for_and_shown(lab: Lab, repo: Path) -> None:
    """The wait does not count against the task, whose limit of time is shorter."""
    lab.kubectl("create", "quota", "full", "-n", NAMESPACE, "--hard=pods=0")
    process = started(lab, repo, "--timeout-per-worker", "10", "sleep 4; date > done")
    try:
        eventually(lambda: "exceeded quota" in waits(repo), "the quota's message")
        time.sleep(15)
    finally:
        lab.kubectl("delete", "quota", "full", "-n", NAMESPACE)
    out, err = process.communicate(timeout=200)
    (result,) = json.loads(out)["results"]
    assert result["status"] == "success", err
    assert 4 <= result["duration"] < 10
    eventually(lambda: not jobs(lab), "the Job's end")


def test_cleanup_collects_the_work_of_a_killed_run(lab: Lab, repo: Path) -> None:
    hands = 'echo x > "$ORCHESTRATOR_ARTIFACTS/made"'
    process = started(lab, repo, f"{hands}; echo kept > there; echo begun; sleep 600")
    log = ".git/orchestrator/runs/*/worker-1/stdout.log"
    eventually(lambda: [path.read_text() for path in repo.glob(log)] == ["begun\n"], "output")
    process.kill()
    process.communicate()
    for words in (("parallel-cleanup",), ("restore",)):
        done = subprocess.run(
            (sys.executable, "-m", "orchestrator", *words), cwd=repo, text=True, check=False,
            capture_output=True, env={"PATH": "/usr/bin:/bin", "HOME": str(repo.parent)}
            | {"KUBECONFIG": str(lab.directory / "kubeconfig-runner")},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert git(repo, "show", "architect/parallel-1:there") == "kept"
    (made,) = repo.glob(".git/orchestrator/runs/*/worker-1/artifacts/made")
    assert made.read_text() == "x\n"
    eventually(lambda: not jobs(lab), "the Job's end")
