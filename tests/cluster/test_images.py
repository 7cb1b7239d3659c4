"""Images that nodes get from a registry, and the nodes that a user chooses."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.cluster.lab import BASE_IMAGE, NAMESPACE, PRIVATE, Lab
from tests.cluster.test_command import jobs, started
from tests.cluster.test_features import do
from tests.support.live import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.docker, pytest.mark.timeout(300)]

RUNTIME = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc",
           "metadata": {"name": "sandbox"}}  # fmt: skip
PRIORITY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5,
            "metadata": {"name": "low"}}  # fmt: skip


def push(lab: Lab, repo: Path) -> str:
    """Push the base image, and return its digest."""
    words = ("image", "push", f"{lab.registry}/team", "--agent", "shell", "--json", "--quiet")
    code, out, err = do(lab, repo, *words)
    assert code == 0, err
    return str(json.loads(out)["images"][BASE_IMAGE].partition("@")[2])


def run(lab: Lab, repo: Path, settings: dict[str, Any], *words: str) -> Popen[str]:
    """Start a run with settings of pods."""
    file = repo.parent / f"{time.monotonic_ns()}.json"
    file.write_text(json.dumps({"cluster": settings}))
    return started(lab, repo, "--config", str(file), *words)


def result(process: Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=200)
    assert "Traceback" not in err
    (found,) = json.loads(out)["results"]
    return {**found, "err": err}


def pod_of(lab: Lab) -> dict[str, Any]:
    """Wait for the only pod of a worker, and return it."""
    found: list[dict[str, Any]] = []

    def exists() -> bool:
        listed = lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json")
        found[:] = [
            pod for pod in json.loads(listed)["items"]
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"
        ]  # fmt: skip
        return len(found) == 1

    eventually(exists, "the worker's pod")
    return found[0]


@contextmanager
def made(lab: Lab, described: dict[str, Any]) -> Iterator[None]:
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(described))
    yield
    lab.kubectl("delete", described["kind"], described["metadata"]["name"])


@pytest.fixture
def empty(lab: Lab) -> Iterator[Lab]:
    """Return the cluster while its nodes have no images of workers."""
    lab.remove_images()
    yield lab
    lab.load(BASE_IMAGE)


def test_nodes_get_images_by_the_digests_that_were_pushed(empty: Lab, repo: Path) -> None:
    lab = empty
    registry = f"{lab.registry}/team"
    refused = started(lab, repo, "--registry", registry, "true")
    assert "orchestrator image push" in refused.communicate(timeout=60)[1]
    assert refused.returncode == 3
    there = f"{registry}/base@{push(lab, repo)}"
    process = started(lab, repo, "--registry", registry, "sleep 5; echo here > there")
    pod = pod_of(lab)
    spec = pod["spec"]
    assert {found["image"] for found in spec["initContainers"] + spec["containers"]} == {there}
    events = lab.kubectl(
        "get",
        "events",
        "-n",
        NAMESPACE,
        f"--field-selector=involvedObject.name={pod['metadata']['name']}",
    )
    assert f'Successfully pulled image "{there}"' in events
    assert result(process)["status"] == "success"
    words = ("doctor", "--engine", "kubernetes")
    _, out, _ = do(lab, repo, *words, ORCHESTRATOR_REGISTRY=registry)
    assert f"image: {BASE_IMAGE}, there {there} (a pod was started)" in out
    assert f"`orchestrator/worker:architect` was not pushed to `{registry}`" in out
    eventually(lambda: not jobs(lab), "the Jobs' end")


def test_image_that_the_registry_does_not_give_is_an_error_in_a_minute(
    lab: Lab, repo: Path
) -> None:
    digest = push(lab, repo)
    private = f"{PRIVATE}/team/base@{digest}"
    wrong = f"{lab.registry}/team/base@sha256:{'0' * 64}"
    began = time.monotonic()
    processes = [
        run(lab, repo, {"images": {BASE_IMAGE: name}}, "true") for name in (private, wrong)
    ]
    denied, unknown = map(result, processes)
    assert time.monotonic() - began < 100
    assert denied["reason"] == unknown["reason"] == "setup_failed"
    assert private in denied["message"]
    assert "401 Unauthorized" in denied["message"]
    assert wrong in unknown["message"]
    assert "failed to resolve reference" in unknown["message"]
    # The administrator's part.
    login = ("--docker-server", PRIVATE, "--docker-username", "ann", "--docker-password", "sesame")
    lab.kubectl("create", "secret", "docker-registry", "team", "-n", NAMESPACE, *login)
    settings = {"images": {BASE_IMAGE: private}, "image_pull_secrets": ["team"]}
    found = result(run(lab, repo, settings, "true"))
    lab.kubectl("delete", "secret", "team", "-n", NAMESPACE)
    assert found["status"] == "success", found
    eventually(lambda: not jobs(lab), "the Jobs' end")


def test_workers_run_on_the_nodes_that_the_user_chooses(lab: Lab, repo: Path) -> None:
    name = f"node{lab.nodes[-1]}"
    chosen = {
        "node_selector": {"example.com/pool": "big"},
        "tolerations": [{"key": "only", "value": "workers", "effect": "NoSchedule"}],
        "priority_class": "low",
    }
    with ExitStack() as stack:
        stack.enter_context(made(lab, RUNTIME))
        stack.enter_context(made(lab, PRIORITY))
        lab.kubectl("label", "node", name, "example.com/pool=big")
        lab.kubectl("taint", "node", name, "only=workers:NoSchedule")
        stack.callback(lab.kubectl, "taint", "node", name, "only-")
        stack.callback(lab.kubectl, "label", "node", name, "example.com/pool-")
        process = run(lab, repo, chosen, "--runtime", "sandbox", "sleep 5")
        pod = pod_of(lab)
        assert (pod["spec"]["nodeName"], pod["spec"]["priority"]) == (name, 5)
        assert pod["spec"]["runtimeClassName"] == "sandbox"
        assert result(process)["status"] == "success"
        elsewhere = {"node_selector": chosen["node_selector"], "start_within": 10}
        began = time.monotonic()
        found = result(run(lab, repo, elsewhere, "true"))
        assert time.monotonic() - began < 60
        assert "taint" in found["message"]
    eventually(lambda: not jobs(lab), "the Jobs' end")


def test_classes_that_the_cluster_lacks_are_an_error_in_a_minute(lab: Lab, repo: Path) -> None:
    first = run(lab, repo, {"priority_class": "none"}, "true")
    second = started(lab, repo, "--runtime", "nothing", "true")
    assert "no PriorityClass with name none" in result(first)["message"]
    assert 'RuntimeClass "nothing" not found' in result(second)["message"]
    eventually(lambda: not jobs(lab), "the Jobs' end")
