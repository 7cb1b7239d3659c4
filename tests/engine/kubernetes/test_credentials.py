"""The configuration of kubectl: credentials that change while a run lasts, and broken files."""

import base64
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.engine.kubernetes import cluster as module
from orchestrator.engine.kubernetes.cluster import Cluster, patient
from tests.engine.kubernetes.conftest import Api
from tests.support.errors import raises

pytestmark = pytest.mark.process

User = Callable[[str], None]
"""Gives the user of the kubeconfig a credential."""
PLUGIN = """\
import pathlib
with open({asked!r}, "a") as file:
    file.write("x")
print(pathlib.Path({answer!r}).read_text())
"""


def jwt(name: str) -> str:
    parts = (b'{"alg": "none"}', json.dumps({"sub": name}).encode(), b"x")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def give(kubeconfig: Path, user: dict[str, Any]) -> None:
    settings = json.loads(kubeconfig.read_text())
    settings["users"] = [{"name": "u", "user": user}]
    kubeconfig.write_text(json.dumps(settings))


def plugin(kubeconfig: Path, status: dict[str, str] | None) -> Path:
    """Let the user have a command for credentials; return a file with a character per call."""
    top = kubeconfig.parent
    program, answer, asked = top / "plugin.py", top / "answer", top / "asked"
    program.write_text(PLUGIN.format(asked=str(asked), answer=str(answer)))
    version = "client.authentication.k8s.io/v1"
    found = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    answer.write_text(json.dumps(found))
    command = {"apiVersion": version, "command": sys.executable, "args": [str(program)]}
    give(kubeconfig, {"exec": command})
    return asked


@pytest.fixture(params=["token", "token file", "exec", "oidc"])
def user(request: pytest.FixtureRequest, kubeconfig: Path) -> User:
    def make(token: str) -> None:
        if request.param == "token":
            give(kubeconfig, {"token": token})
        elif request.param == "token file":
            (kubeconfig.parent / "token").write_text(f"{token}\n")
            give(kubeconfig, {"tokenFile": "token"})
        elif request.param == "exec":
            plugin(kubeconfig, {"token": token})
        else:
            oidc = {"name": "oidc", "config": {"id-token": token}}
            give(kubeconfig, {"auth-provider": oidc})

    return make


@patient
def ask(cluster: Cluster) -> dict[str, Any]:
    return cluster.request("GET", "/version")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RENEWAL", 0.0, raising=False)


@pytest.mark.usefixtures("at_once")
def test_credential_that_changed_is_read_again(api: Api, kubeconfig: Path, user: User) -> None:
    api.answers["/version"] = {"major": "1"}
    api.token = jwt("old")
    user(api.token)
    cluster = Cluster(kubeconfig=kubeconfig)
    assert ask(cluster) == {"major": "1"}
    api.token = jwt("new")
    with pytest.raises(EngineUnavailableError):
        cluster.request("GET", "/version")
    user(api.token)
    with pytest.raises(EngineUnavailableError):
        cluster.request("GET", "/version")
    assert cluster.request("GET", "/version") == {"major": "1"}
    assert cluster.headers() == {"authorization": f"Bearer {api.token}"}


@pytest.mark.usefixtures("at_once")
def test_certificates_of_a_command_are_asked_for_again(api: Api, kubeconfig: Path) -> None:
    def pair(name: str) -> dict[str, str]:
        return {"clientCertificateData": f"certificate {name}", "clientKeyData": f"key {name}"}

    def used() -> list[str]:
        """Return what new connections of the client use."""
        settings = cluster._client.rest_client.pool_manager.connection_pool_kw
        assert settings["cert_file"] == cluster.configuration.cert_file
        return [Path(settings[name]).read_text() for name in ("cert_file", "key_file")]

    api.answers["/version"] = {"major": "1"}
    plugin(kubeconfig, pair("old"))
    cluster = Cluster(kubeconfig=kubeconfig)
    ask(cluster)
    assert used() == ["certificate old", "key old"]
    plugin(kubeconfig, pair("new"))
    api.failures = [(401, "{}")]
    ask(cluster)
    assert used() == ["certificate new", "key new"]


def test_many_threads_do_not_read_the_configuration_again_and_again(
    api: Api, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RENEWAL", 60.0, raising=False)
    api.answers["/version"] = {"major": "1"}
    api.token = "old"
    asked = plugin(kubeconfig, {"token": "old"})
    cluster = Cluster(kubeconfig=kubeconfig)
    ask(cluster)
    cluster._loaded_at -= 120
    plugin(kubeconfig, {"token": "new"})
    api.token = "new"
    found: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: found.append(ask(cluster))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [{"major": "1"}] * 16
    assert asked.read_text() == "xx"


@pytest.mark.usefixtures("at_once")
def test_credential_that_cannot_be_read_again_ends_nothing(
    api: Api, kubeconfig: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The user can log in again, and the context stays the one with which the run began."""
    api.answers["/version"] = {"major": "1"}
    api.token = "old"
    give(kubeconfig, {"token": "old"})
    cluster = Cluster(kubeconfig=kubeconfig)
    ask(cluster)
    api.token = "new"
    plugin(kubeconfig, {})
    for _ in range(2):
        with pytest.raises(EngineUnavailableError):
            cluster.request("GET", "/version")
    give(kubeconfig, {"token": "new"})
    settings = json.loads(kubeconfig.read_text())
    settings["contexts"].append({"name": "other", "context": {"cluster": "lost", "user": "u"}})
    kubeconfig.write_text(json.dumps({**settings, "current-context": "other"}))
    assert ask(cluster) == {"major": "1"}
    assert cluster.context == "x"
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("at_once")
def test_credential_that_expires_is_asked_for_before_it_is_refused(
    api: Api, kubeconfig: Path
) -> None:
    api.answers["/version"] = {"major": "1"}
    plugin(kubeconfig, {"token": "old", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    cluster = Cluster(kubeconfig=kubeconfig)
    plugin(kubeconfig, {"token": "new", "expirationTimestamp": "2100-01-01T00:00:00Z"})
    api.token = "new"
    assert cluster.request("GET", "/version") == {"major": "1"}
    plugin(kubeconfig, {"token": "newer"})
    assert cluster.request("GET", "/version") == {"major": "1"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("clusters: [}", id="broken"),
        pytest.param("- a\n- b\n", id="list"),
        pytest.param("a text", id="text"),
        pytest.param("", id="empty"),
        pytest.param("{}", id="without anything"),
        pytest.param("current-context: x\ncontexts: 5\n", id="no contexts"),
        pytest.param("\x00", id="control character"),
    ],
)
def test_configuration_that_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with raises("cluster.unreadable-settings") as caught:
        Cluster(kubeconfig=file)
    assert "\n" not in caught.value.message
    assert caught.value.hint == "check it with `kubectl config view`"
    file.unlink()
    with raises("cluster.unreadable-settings"):
        Cluster(kubeconfig=file)


@pytest.fixture
def null() -> Iterator[IO[str]]:
    with Path("/dev/null").open() as file:
        yield file


def fails(kubeconfig: Path) -> None:
    plugin(kubeconfig, None)
    program = "import sys\nsys.exit('please\\nlog in')"
    (kubeconfig.parent / "plugin.py").write_text(program)


def is_missing(kubeconfig: Path) -> None:
    give(kubeconfig, {"exec": {"apiVersion": "v1", "command": "/no/such/command"}})


def is_malformed(kubeconfig: Path) -> None:
    give(kubeconfig, {"exec": {"command": "true"}})


def prints(status: Any) -> Callable[[Path], object]:
    return lambda kubeconfig: plugin(kubeconfig, status)


@pytest.mark.parametrize(
    "command",
    [
        fails,
        is_missing,
        is_malformed,
        prints(None),
        prints({}),
        prints({"token": ""}),
        prints("token"),
        prints({"clientCertificateData": "certificate"}),
        prints({"token": "x", "expirationTimestamp": "tomorrow"}),
    ],
)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_command_without_a_credential_is_an_error(
    kubeconfig: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    null: IO[str],
    command: Callable[[Path], object],
    *,
    is_terminal: bool,
) -> None:
    command(kubeconfig)
    handlers = [*logging.root.handlers]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdin", null)
    with raises("cluster.no-credentials") as caught:
        Cluster(kubeconfig=kubeconfig)
    assert "\n" not in caught.value.message
    assert "NoneType" not in caught.value.message
    assert caught.value.hint == "`kubectl get pods` tells whether you are logged in to the cluster"
    assert logging.root.handlers == handlers
    if not is_terminal:
        assert capfd.readouterr() == ("", "")
        assert ("please log in" in caught.value.message) == (command is fails)


@pytest.mark.parametrize("token", ["a\nb", "a\x00", "ä\u20ac"])
def test_token_that_no_request_can_have_is_an_error(kubeconfig: Path, token: str) -> None:
    give(kubeconfig, {"token": token})
    with raises("cluster.unreadable-settings"):
        Cluster(kubeconfig=kubeconfig)


def test_first_file_that_names_a_context_decides_as_for_kubectl(
    kubeconfig: Path, tmp_path: Path
) -> None:
    settings = json.loads(kubeconfig.read_text())
    chosen = settings["current-context"]
    context = dict(settings["contexts"][0]["context"], namespace="of-another")
    other, none = tmp_path / "other", tmp_path / "none"
    other.write_text(json.dumps({
        "current-context": "other", "contexts": [{"name": "other", "context": context}],
    }))  # fmt: skip
    none.write_text(json.dumps({"kind": "Config", "current-context": ""}))
    for names, current in (
        ((kubeconfig, other), chosen),
        ((other, kubeconfig), "other"),
        ((none, kubeconfig, other), chosen),
    ):
        made = Cluster(kubeconfig=":".join(map(str, names)), namespace="n")  # type: ignore[arg-type]
        assert made.context == current


def test_empty_files_and_variables_are_none_as_for_kubectl(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty, comment, missing = (tmp_path / name for name in ("empty", "comment", "missing"))
    empty.write_text("")
    comment.write_text("# nothing\n---\n")
    for names in ((empty, kubeconfig), (kubeconfig, comment), (missing, empty, kubeconfig)):
        Cluster(kubeconfig=":".join(map(str, names)))  # type: ignore[arg-type]
    for names in ((empty,), (missing,), (comment, empty)):
        with raises("cluster.unreadable-settings", "missing or empty"):
            Cluster(kubeconfig=":".join(map(str, names)))  # type: ignore[arg-type]
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text(kubeconfig.read_text())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", "")
    Cluster()
