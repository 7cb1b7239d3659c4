"""Runs on the lab's cluster, and what the cluster has of them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from orchestrator.engine.interface.labels import REPOSITORY
from tests.cluster.lab import NAMESPACE, Lab
from tests.support.live import eventually

Start = Callable[..., Popen[str]]
UNENFORCED = "network,swap,tmp,tmp_inodes"
"""Limits that the lab's cluster does not enforce."""
COMMAND = (
    sys.executable, "-m", "orchestrator", "parallel", "--engine", "kubernetes",
    "--agent-cli", "shell", "--network", "none", "--json",
    "--allow-unenforced", UNENFORCED,
)  # fmt: skip


def begin(repo: Path, kubeconfig: Path, *arguments: str, **env: str) -> Popen[str]:
    """Start a command of `orchestrator` with a user's rights in the cluster."""
    return Popen(
        arguments, cwd=repo, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(repo.parent)}
        | {"KUBECONFIG": str(kubeconfig), **env},
    )  # fmt: skip


def present(lab: Lab, repo: Path, kind: str) -> list[dict[str, Any]]:
    """Return the objects of a repository's workers that nobody has deleted."""
    found = json.loads(lab.kubectl("get", kind, "-n", NAMESPACE, "-o", "json"))["items"]
    return [
        thing
        for thing in found
        if thing["metadata"].get("annotations", {}).get(REPOSITORY, "").startswith(str(repo))
        and "deletionTimestamp" not in thing["metadata"]
    ]


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Print figures of a test that passes."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def job_of(pod: dict[str, Any]) -> str:
    """Return the name of a pod's Job."""
    return str(pod["metadata"]["labels"]["job-name"])


def node_of(pod: dict[str, Any]) -> int:
    """Return the number of a pod's node."""
    return int(pod["spec"]["nodeName"].removeprefix("node"))


def evict(lab: Lab, pod: dict[str, Any]) -> None:
    """Evict a pod as `kubectl drain` does."""
    name = pod["metadata"]["name"]
    described = {
        "apiVersion": "policy/v1beta1" if lab.version < (1, 22) else "policy/v1",
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
