"""The channel to a real API server and kubelet."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest

from orchestrator.base.errors import NotRunningError
from orchestrator.engine.kubernetes.channel import PodProcess
from orchestrator.engine.kubernetes.cluster import Cluster, ClusterRefusedError
from tests.cluster.lab import BASE_IMAGE

pytestmark = pytest.mark.cluster

_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "main",
                "image": BASE_IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sleep", "infinity"],
            }
        ],
    },
}
_number = count(1)


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[str]:
    name = f"channel-{next(_number)}"
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    cluster.request("POST", path, {**_POD, "metadata": {"name": name}})
    try:
        end = time.monotonic() + 60
        while (phase := cluster.request("GET", f"{path}/{name}")["status"]["phase"]) != "Running":
            assert time.monotonic() < end, phase
            time.sleep(0.1)
        yield name
    finally:
        cluster.request("DELETE", f"{path}/{name}")


def run(
    cluster: Cluster, pod: str, *command: str, data: bytes = b""
) -> tuple[int | None, bytes, bytes]:
    with closing(PodProcess(cluster, pod, "main", command)) as process:
        process.write(data)
        chunks = list(process.output())
    streams = {
        name: b"".join(c.data for c in chunks if c.stream == name) for name in ("stdout", "stderr")
    }
    return process.exit_code, streams["stdout"], streams["stderr"]


def test_streams_are_apart_and_the_exit_code_is_known(cluster: Cluster, pod: str) -> None:
    assert run(cluster, pod, "sh", "-c", "printf out; printf err >&2; exit 7") == (
        7,
        b"out",
        b"err",
    )
    assert run(cluster, pod, "true") == (0, b"", b"")


def test_30_mb_arrive_unaltered_in_both_directions(cluster: Cluster, pod: str) -> None:
    data = os.urandom(30_000_000)
    script = f"head -c {len(data)} > /tmp/data && sha256sum < /tmp/data"
    code, out, _ = run(cluster, pod, "sh", "-c", script, data=data)
    assert (code, out.split()[0].decode()) == (0, hashlib.sha256(data).hexdigest())
    assert run(cluster, pod, "cat", "/tmp/data") == (0, data, b"")


def test_absent_pods_and_containers_do_not_run(cluster: Cluster, pod: str) -> None:
    for name, container in (("absent", "main"), (pod, "absent")):
        with pytest.raises(NotRunningError):
            PodProcess(cluster, name, container, ["true"])
    with pytest.raises(ClusterRefusedError) as caught:
        cluster.request("GET", f"/api/v1/namespaces/{cluster.namespace}/pods/absent")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
