"""The proof that pods have no network: on loopback, and with canned answers."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import StartCancelledError
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.engine.kubernetes import job_pod, network_proof
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.network_in_pod import (
    cluster_targets,
    prove,
    serve,
    try_targets,
)
from orchestrator.engine.kubernetes.network_proof import NetworkProof, proof_job
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.places.place import Start, Waiter
from tests.engine.kubernetes.test_pod import spec
from tests.support.errors import raises
from tests.support.live import eventually

OWN = "tcp:10.0.0.9:8417"
API, KUBELET = "tcp:10.0.0.1:443", "tcp:10.0.1.1:10250"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def target(of: socket.socket, kind: str = "tcp") -> str:
    return f"{kind}:127.0.0.1:{of.getsockname()[1]}"


@pytest.mark.process
def test_only_what_accepts_or_answers_is_reached(listener: socket.socket) -> None:
    with ExitStack() as stack:
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        silent, speaks = [
            stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(2)
        ]
        for each in (silent, speaks):
            each.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: speaks.sendto(b"?", speaks.recvfrom(512)[1]))
        thread.start()
        every = [target(listener), target(closed), target(silent, "udp"), target(speaks, "udp")]
        found = try_targets([*every, "tcp:[::1", "tcp:nowhere:1"], 1.0)
        thread.join()
    assert found == [every[0], every[3]]


@pytest.mark.process
def test_target_that_is_reached_again_is_not_proven(listener: socket.socket) -> None:
    """A plugin that is late, or that opens the network for a moment, is waited for."""
    port = listener.getsockname()[1]
    assert prove(0.2, [target(listener)]) == [target(listener)]
    listener.close()
    began = time.monotonic()

    def open_again() -> None:
        time.sleep(0.7)
        with socket.create_server(("127.0.0.1", port)):
            time.sleep(0.6)

    thread = threading.Thread(target=open_again)
    thread.start()
    assert prove(20, [f"tcp:127.0.0.1:{port}"]) == []
    assert time.monotonic() > began + 1.3 + 0.9
    thread.join()


def test_pod_knows_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert cluster_targets()[0] == "tcp:10.96.0.1:6443"


class Process:
    """The end of a command in a pod, with a canned output."""

    exit_code = 0

    def __init__(self, text: str) -> None:
        self._text = text

    def output(self) -> Iterator[LogChunk]:
        yield LogChunk(stream="stdout", data=self._text.encode())

    def close(self) -> None:
        pass


class Answers:
    """What the program answers in the canary and in a worker's pod."""

    def __init__(self) -> None:
        self.canary: dict[str, Any] = {"targets": [API], "reached": [API, OWN]}
        self.worker: Callable[[], object] = lambda: {"reached": []}
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *given: Any) -> Process:
        verb, *rest = given[3][5:]
        self.asked.append((verb, *rest))
        answer = self.canary if verb == "look" else self.worker()
        return Process(answer if isinstance(answer, str) else json.dumps(answer))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(job_pod, "PodProcess", made)
    monkeypatch.setattr(network_proof, "_PATIENCE", 0.0)
    return made


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    settings = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.3:6443"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(settings))
    made = Cluster(kubeconfig=file, namespace="agents")
    running = {"name": "probe", "state": {"running": {}}}
    pod = {
        "metadata": {"name": "p", "uid": "1", "creationTimestamp": ""},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.9",
            "hostIP": "10.0.1.1",
            "containerStatuses": [running],
        },
    }

    def request(_method: str, path: str, _body: Any = None, query: Any = None) -> dict[str, Any]:  # noqa: ARG001
        return {"items": [pod]} if path.endswith("/pods") else pod

    monkeypatch.setattr(made, "request", request)
    return made


def test_policy_is_proven_by_what_the_canary_reaches(answers: Answers, cluster: Cluster) -> None:
    assert NetworkProof(cluster).begin("/repo", ["none"]) == ""
    _, proven, _ = answers.asked
    assert {API, KUBELET, OWN, "tcp:169.254.169.254:80"} <= {*proven[2:]}
    verbs = [verb for verb, *_ in answers.asked]
    assert verbs == ["look", "prove", "look"]


def test_reached_target_is_no_proof(answers: Answers, cluster: Cluster) -> None:
    answers.worker = lambda: {"reached": [KUBELET]}
    proof = NetworkProof(cluster)
    assert KUBELET in proof.begin("/repo", ["none"])
    pod = job_pod.JobPod(cluster, "x")
    pod.metadata = {"name": "p", "uid": "1"}
    with raises("network.unenforced", KUBELET):
        proof.prove(pod, "porter", "none", Waiter())
    with pytest.raises(StartCancelledError):
        proof.prove(pod, "porter", "none", Waiter(has_left=lambda: True))


def test_open_pods_must_reach_nothing_but_name_servers(answers: Answers, cluster: Cluster) -> None:
    servers = ["tcp:10.0.0.2:53", "udp:10.0.0.2:53"]
    answers.canary["targets"] += servers
    assert NetworkProof(cluster).begin("/repo", ["open", "none"]) == ""
    none, opened = [{*words[1:]} for verb, *words in answers.asked if verb == "prove"]
    assert none - opened == {*servers}
    assert {API, KUBELET, OWN, "tcp:169.254.169.254:80"} <= opened
    answers.worker = lambda: {"reached": [API]}
    assert "`--network open` reached tcp:10" in NetworkProof(cluster).begin("/repo", ["open"])


@pytest.mark.parametrize("seen", [[], [OWN], [API]], ids=["nothing", "only itself", "not itself"])
def test_canary_that_reaches_nothing_is_no_proof(
    answers: Answers, cluster: Cluster, seen: list[str]
) -> None:
    answers.canary["reached"] = seen
    with raises("network.unproven"):
        NetworkProof(cluster).begin("/repo", ["none"])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"reached": 0}', "1" * 10**6, '{"reached": []'])
def test_unreadable_answer_is_no_proof(answers: Answers, cluster: Cluster, text: str) -> None:
    answers.worker = lambda: text
    with raises("network.unproven"):
        NetworkProof(cluster).begin("/repo", ["none"])


def test_nothing_is_ordered_in_a_pod_that_proved_nothing(
    answers: Answers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, called = NetworkProof(cluster), list[str]()
    proof.begin("/repo", ["none"])
    place = PodPlace(cluster, spec(), network=proof)
    place._pod.metadata = {"name": "p", "uid": "1"}
    monkeypatch.setattr(place._pod.porter, "call", lambda *words: called.append(words[0]))
    answers.worker = lambda: {"reached": [API]}
    for _ in range(2):
        with raises("network.unenforced"):
            place.order("agent", Start(command=("true",)))
    assert called == []


def test_policy_of_the_package_selects_workers_and_no_canary() -> None:
    canary = proof_job("x", {"orchestrator.managed": "true"}, PodSettings())
    assert "orchestrator.network" not in canary["spec"]["template"]["metadata"]["labels"]


@pytest.mark.process
@pytest.mark.timeout(30)
def test_pod_that_nobody_needs_ends_itself(listener: socket.socket) -> None:
    """Its client may be dead; every use of the pod is a connection to it."""
    port = listener.getsockname()[1]
    listener.close()
    with ThreadPoolExecutor() as pool:
        served = pool.submit(serve, port, 1.0)
        for _ in range(4):
            eventually(lambda: try_targets([f"tcp:127.0.0.1:{port}"], 0.3), "the connection")
            time.sleep(0.5)
            assert not served.done()
        assert served.result() is None


@pytest.mark.process
@pytest.mark.timeout(30)
def test_canary_that_cannot_start_is_an_error_once(
    answers: Answers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pod, "_PATIENCE", 0.5)
    answered, started = cluster.request, []

    def request(method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:
        found = answered(method, path, body, query)
        if method == "POST":
            started.append(body["metadata"]["name"])
        if path.endswith("/pods") and "canary" in query["labelSelector"]:
            waiting = {"waiting": {"reason": "ErrImagePull", "message": "gone"}}
            status = {"containerStatuses": [{"name": "probe", "state": waiting}]}
            return {"items": [{**found["items"][0], "status": {"phase": "Pending", **status}}]}
        return found

    monkeypatch.setattr(cluster, "request", request)
    with raises("pod.start", "gone"):
        NetworkProof(cluster).begin("/repo", ["none"])
    assert [name.split("-")[1] for name in started] == ["probe", "canary"]
    assert answers.asked == []
