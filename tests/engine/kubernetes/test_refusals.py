"""What a cluster is refused for, against a stand-in for the API server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from orchestrator.engine import load_engine
from orchestrator.engine.kubernetes.engine import KubernetesEngine
from orchestrator.errors import UnsupportedError
from orchestrator.worker.place import check_transfer
from tests.support.settings import load

pytestmark = pytest.mark.process
ANSWERS = {
    "/version": {"major": "1", "minor": "20", "gitVersion": "v1.20.2"},
    "/api/v1/namespaces/agents": {"metadata": {"uid": "4711"}},
}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS[self.path]).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesEngine]:
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
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
    assert {"network", "pids", "open_files", "swap", "tmp"} <= {*features.unenforced}
    with pytest.raises(UnsupportedError):
        engine.check(images=(), runtime="runsc")


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "open"},
        {"network": "none", "keys": "broker"},
        {"network": "none", "ports": "3000"},
    ],
    ids=lambda settings: " ".join(settings),
)
def test_what_needs_a_network_is_refused(
    engine: KubernetesEngine, tmp_path: Path, settings: dict[str, object]
) -> None:
    features = engine.check(images=(), runtime=None)
    allowed = {"network": "none", "secrets": ("HOME",), "setup": ("true",), "checks": ("true",)}
    check_transfer(engine, features, load(allowed, top=tmp_path))
    with pytest.raises(UnsupportedError):
        check_transfer(engine, features, load(settings, top=tmp_path))
