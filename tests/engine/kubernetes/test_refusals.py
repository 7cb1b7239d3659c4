"""What a cluster is refused for, against a stand-in for the API server."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.settings.cluster import PodSettings
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine import load_engine
from orchestrator.engine.egress import check_gateways, worker_egress
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE
from orchestrator.engine.images.registry import push_images
from orchestrator.engine.interface.spec import BrokerLink
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.diagnosis import apply_command
from orchestrator.engine.kubernetes.engine import KubernetesEngine
from orchestrator.engine.kubernetes.network_proof import NetworkProof
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.places.place import PlaceSpec
from orchestrator.worker.steps.place import check_place_network, check_transfer
from orchestrator.worker.steps.services import check_services
from tests.engine.kubernetes.conftest import Api
from tests.engine.kubernetes.test_lost_pods import JOBS
from tests.engine.kubernetes.test_pod import OPEN, WORKERS, linked, spec
from tests.support.errors import raises
from tests.support.settings import load, write

pytestmark = pytest.mark.process
ANSWERS: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "20", "gitVersion": "v1.20.2"},
    "/api/v1/namespaces/agents": {"metadata": {"uid": "4711"}},
}


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.end_headers()
        self.wfile.write(b'{"status": {"allowed": true}}')

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS[self.path]).encode())

    def log_message(self, *_: object) -> None:
        pass


class Pushing:
    """An engine that has pushed every image."""

    def push(self, image: str, *, name: str, progress: object) -> str:  # noqa: ARG002
        return "sha256:" + "1" * 64


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesEngine]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        settings = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        settings["contexts"][0]["context"]["namespace"] = "agents"  # type: ignore[index]
        (tmp_path / "kubeconfig").write_text(json.dumps(settings))
        monkeypatch.setattr(
            "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION",
            str(tmp_path / "kubeconfig"),
        )
        made = load_engine(load({"engine": "kubernetes"}, top=tmp_path).isolation.engine)
        assert isinstance(made, KubernetesEngine)
        yield made
        server.shutdown()


def test_cluster_claims_no_network_policy(engine: KubernetesEngine) -> None:
    features = engine.check(images=(), runtime=None)
    assert (features.id, features.address, features.transfer) == ("4711", "x", "streams")
    assert {*features.unenforced} == {"network", "swap", "tmp", "tmp_inodes"}


@pytest.mark.parametrize(
    ("minor", "fields"),
    [("20", 0), ("31+", 1), ("36", 2), ("", 0), (None, 0)],
)
def test_jobs_have_what_the_version_of_the_cluster_has(
    api: Api, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, minor: str | None, fields: int
) -> None:
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig)
    )
    api.answers = {**ANSWERS, "/version": {"major": "1", "minor": minor}, JOBS: {"metadata": {}}}
    engine = KubernetesEngine()
    engine.check(images=(), runtime=None)
    place = engine.open_place(spec())
    assert isinstance(place, PodPlace)
    place._create(frozenset())
    engine._network._repository, engine._network._settings = "/repo", PodSettings()
    engine._network._start("canary", {})
    for sent in api.sent:
        found = {"podFailurePolicy", "podReplacementPolicy"} & sent["spec"].keys()
        assert len(found) == fields
    assert len(api.sent) == 2


def test_images_that_were_not_pushed_are_refused(
    engine: KubernetesEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    images = (BASE_IMAGE, "alpine", "other.example/mine:1")
    engine.check(images=images, runtime=None)
    there = "reg.example:5000/team"
    engine.configure(PodSettings(registry=there))
    with raises("image.not-pushed", BASE_IMAGE, there):
        engine.check(images=images, runtime=None)
    (finding,) = list(engine.diagnose("/repo", (BASE_IMAGE,)))[-1:]
    assert finding.state == "fail"
    # Who cannot push names the images.
    assert {f"`orchestrator image push {there}`", "`cluster.images`"} <= {*words(finding.hint)}
    engine.configure(PodSettings(registry=there, images={BASE_IMAGE: "reg.example/base:1"}))
    engine.check(images=images, runtime=None)
    push_images(Pushing(), [BASE_IMAGE], there, progress=lambda _: None)  # type: ignore[arg-type]
    engine.configure(PodSettings(registry=there))
    engine.check(images=images, runtime=None)
    with raises("image.not-pushed", BROKER_IMAGE, there):
        engine.check(images=(BROKER_IMAGE,), runtime=None)


def words(hint: str | None) -> list[str]:
    """Return the commands and settings of a hint."""
    return re.findall("`[^`]+`", hint or "")


NAME_ANOTHER = "`kubectl config set-context --current --namespace NAME`"


@pytest.mark.parametrize("namespace", ["agents", "default"])
@pytest.mark.parametrize("forbids", [False, True])
def test_namespace_that_is_not_there_or_closed_has_two_ways_out(
    api: Api, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, namespace: str, *, forbids: bool
) -> None:
    kubeconfig.write_text(kubeconfig.read_text().replace('"agents"', f'"{namespace}"'))
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig)
    )
    api.answers |= {"/version": ANSWERS["/version"], "/readyz": {}}
    api.forbids, api.allowed = forbids, ("/version", "/readyz")
    with raises("cluster.namespace", f"`{namespace}`") as caught:
        KubernetesEngine().check(images=(), runtime=None)
    # `kubernetes manifest` refuses the namespace `default`.
    apply = [] if namespace == "default" else [f"`{apply_command(namespace)}`"]
    assert words(caught.value.hint) == [*apply, NAME_ANOTHER]


def test_short_pod_is_created_although_the_answer_was_lost(api: Api, cluster: Cluster) -> None:
    proof = NetworkProof(cluster)
    proof._repository, proof._settings = "/repo", PodSettings()
    api.failures = [(503, "<html>"), (409, json.dumps({"reason": "AlreadyExists"}))]
    assert proof._start("canary", {}).job.startswith("orchestrator-canary-")
    assert api.failures == []
    api.failures = [(403, json.dumps({"reason": "Forbidden"}))]
    with raises("cluster.refused"):
        proof._start("canary", {})


@pytest.mark.parametrize("body", ["<html>Log in here</html>", "[]"])
def test_answer_that_is_no_object_is_an_error(api: Api, cluster: Cluster, body: str) -> None:
    api.failures = [(200, body)]
    with raises("cluster.unreadable-answer"):
        cluster.request("GET", "/version")


def test_forbidden_request_names_who_knows_the_missing_rights(api: Api, cluster: Cluster) -> None:
    with raises("cluster.refused") as caught:
        cluster.request("GET", "/nowhere")
    assert caught.value.hint is None
    api.forbids = True
    with raises("cluster.refused") as caught:
        cluster.request("GET", "/nowhere")
    assert words(caught.value.hint) == ["`orchestrator doctor --engine kubernetes`"]


def check(engine: KubernetesEngine, top: Path, **settings: object) -> None:
    features, config = engine.check(images=(), runtime=None), load(settings, top=top)
    check_transfer(engine, features, config)
    egress = worker_egress(config, (), {})
    check_gateways(config, egress, features)
    check_place_network(engine, features, config, egress)


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("engine.unsupported", {"keys": "broker", "network": "allowlist", "allow": ("a.example",)}),
        ("engine.unsupported", {"network": "learn"}),
        ("engine.unsupported", {"network": "allowlist", "allow": ("example.com",)}),
        ("engine.unsupported", {"check_network": "learn", "checks": ("true",)}),
        ("engine.one-network", {"setup_network": "open", "network": "none", "setup": ("true",)}),
        ("engine.one-network", {"setup_network": "none", "setup": ("true",)}),
        ("engine.private-address", {"allow": ("10.1.2.3:80",)}),
        ("engine.private-address", {"allow": ("8.0.0.0/5",)}),
        ("engine.private-address", {"allow": ("host.docker.internal",)}),
        ("engine.private-address", {"api_base": "http://192.168.1.2/v1"}),
    ],
    ids=str,
)
def test_what_the_network_of_a_pod_cannot_be_is_refused(
    engine: KubernetesEngine, tmp_path: Path, key: str, settings: dict[str, object]
) -> None:
    with raises(key):
        check(engine, tmp_path, **{"network": "open", **settings})


def test_pods_can_have_no_network_or_an_open_one(engine: KubernetesEngine, tmp_path: Path) -> None:
    stages = {"setup": ("true",), "checks": ("true",), "teardown": ("true",)}
    check(engine, tmp_path, network="none", secrets=("HOME",), **stages)
    check(engine, tmp_path, network="open", check_network="none", **stages)
    check(engine, tmp_path, network="open", check_network="open", **stages)
    check(engine, tmp_path, network="open", setup_network="none")
    check(engine, tmp_path, network="open", allow=("9.9.9.9:53",), api_base="http://9.9.9.9/v1")
    for network in ("none", "open"):
        check(engine, tmp_path, network=network, keys="broker", api_base="http://10.1.2.3/v1")
    assert engine.create_network("x", {}) == "open"


def test_every_pod_but_the_brokers_proves_the_policy(
    engine: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def proof(spec: PlaceSpec) -> object:
        place = engine.open_place(spec)
        assert isinstance(place, PodPlace)
        return place._network

    assert proof(linked(None)) is None
    monkeypatch.setattr(engine, "_is_proven", True)
    for place in (linked(None), linked(WORKERS), spec(steps=OPEN)):
        assert proof(place) is engine._network
    assert proof(linked(BrokerLink())) is None


SERVICE = {"image": "redis:8"}


@pytest.mark.parametrize(
    "missing", [{}, {"health": "true", "variables": {"URL": "redis://{host}:{port}"}}]
)
def test_service_needs_what_only_its_image_knows(
    engine: KubernetesEngine, tmp_path: Path, missing: dict[str, object]
) -> None:
    def check_service(service: dict[str, object], *, is_refused: bool = False) -> None:
        file = write(tmp_path, json.dumps({"services": {"cache": service}}))
        config = load({"network": "none", "ports": "3000"}, file=file)
        features = engine.check(images=(), runtime=None)
        check_transfer(engine, features, config)
        check_place_network(engine, features, config, worker_egress(config, (), {}))
        check_services(engine, replace(features, knows_images=True), config)
        with raises("service.port-unknown") if is_refused else nullcontext():
            check_services(engine, features, config)

    check_service({**SERVICE, "health": "true"})
    check_service({**SERVICE, **missing, "port": 6379})
    check_service({**SERVICE, **missing}, is_refused=True)


@pytest.mark.parametrize("pids", [None, 256, 255, 4096])
def test_processes_of_services_are_not_limited_silently(
    engine: KubernetesEngine, tmp_path: Path, pids: int | None
) -> None:
    service = {**SERVICE, "port": 6379, **({} if pids is None else {"pids": pids})}
    file = write(
        tmp_path, json.dumps({"services": {"db": {**SERVICE, "port": 1}, "cache": service}})
    )
    features = engine.check(images=(), runtime=None)
    config = load({"network": "none"}, file=file)
    # As a resumed run reads it, in which every setting has been set.
    again = ParallelConfig.model_validate_json(config.model_dump_json())
    accepted = load({"network": "none", "allow_unenforced": ("pids", "swap")}, file=file)
    check_services(engine, features, accepted)
    check_services(engine, replace(features, limits_services=True), config)
    for each in (config, again):
        if pids in (None, 256):
            check_services(engine, features, each)
        else:
            with raises("service.unlimited", "`cache`", "`pids`") as caught:
                check_services(engine, features, each)
            assert caught.value.exit_code == 3
            assert words(caught.value.hint) == ["`podPidsLimit`", "`pids`", "`allow_unenforced`"]


def test_runtime_is_a_class_of_the_cluster(engine: KubernetesEngine, tmp_path: Path) -> None:
    features = engine.check(images=(), runtime="runsc")
    config = load({"engine": "kubernetes", "network": "none", "runtime": "runsc"}, top=tmp_path)
    check_transfer(engine, features, config)
