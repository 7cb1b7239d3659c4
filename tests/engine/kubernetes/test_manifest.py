"""The objects for an administrator, and the rights that `doctor` asks about."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client

from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.interface.diagnosis import Finding
from orchestrator.engine.interface.spec import CLOSED
from orchestrator.engine.kubernetes.diagnosis import apply_command, diagnose
from orchestrator.engine.kubernetes.manifest import ENFORCE, Right, manifest, rights
from orchestrator.faces.cli.app import run
from tests.support.errors import reports

MODELS = {
    "Namespace": "V1Namespace",
    "ServiceAccount": "V1ServiceAccount",
    "Role": "V1Role",
    "RoleBinding": "V1RoleBinding",
    "NetworkPolicy": "V1NetworkPolicy",
    "ResourceQuota": "V1ResourceQuota",
}


def objects(**rest: Any) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(manifest("team", **{"pods": 7, **rest})))


def test_objects_have_only_fields_that_the_api_has() -> None:
    api = client.ApiClient(client.Configuration())
    found = objects(users=["a b", 'quote"\n'], groups=["g"])
    assert {one["kind"] for one in found} == {*MODELS}
    for one in found:
        made = api.deserialize(json.dumps(one), MODELS[one["kind"]], "application/json")
        assert api.sanitize_for_serialization(made) == one
    subjects = next(one for one in found if one["kind"] == "RoleBinding")["subjects"]
    assert [(one["kind"], one["name"]) for one in subjects] == [
        ("User", "a b"), ("User", 'quote"\n'), ("Group", "g"),
    ]  # fmt: skip


def test_everything_is_in_the_namespace_and_nothing_is_a_secret() -> None:
    for one in objects():
        place = one["metadata"].get("namespace", one["metadata"]["name"])
        assert place == "team"
    assert not {"secrets", "configmaps", "nodes", "*", "persistentvolumeclaims"} & {
        part for right in rights() for part in right
    }
    assert Right("create", "", "pods/exec") in rights()
    assert Right("create", "batch", "jobs") in rights()
    assert Right("create", "", "pods") not in rights()


def test_command_prints_the_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kubernetes", "manifest", "--namespace", "team", "--user", "me"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert printed == objects(users=["me"], pods=100)
    assert run(["kubernetes", "manifest", "--pod-security", "baseline"]) == 0
    (namespace, *_) = yaml.safe_load_all(capsys.readouterr().out)
    assert [*namespace["metadata"]["labels"].items()] == [(ENFORCE, "baseline")]
    for wrong in ("default", "A", "a: b", "-"):
        with reports("cluster.namespace-name"):
            run(["kubernetes", "manifest", "--namespace", wrong])


def open_policy(*deny: str) -> dict[str, Any]:
    names = {one["metadata"]["name"]: one for one in objects(deny=deny)}
    return dict(names["orchestrator-open"]["spec"])


def test_open_network_is_public_addresses_and_name_servers() -> None:
    """One list of closed networks serves all engines."""
    public, names, _ = open_policy()["egress"]
    assert public == {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [*CLOSED]}}]}
    assert names == {
        "to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
        "ports": [{"protocol": way, "port": 53} for way in ("UDP", "TCP")],
    }


def test_networks_of_the_cluster_can_be_closed() -> None:
    (block,) = open_policy("34.1.2.3", "34.0.0.0/16", "10.0.0.0/8")["egress"][0]["to"]
    assert block["ipBlock"]["except"] == [*CLOSED, "34.1.2.3/32", "34.0.0.0/16"]


@pytest.mark.parametrize("deny", [["x"], ["34.0.0.1/16"], ["2001:db8::/32"], ["0.0.0.0/0"]])
def test_wrong_network_is_refused(deny: list[str]) -> None:
    with reports("cluster.deny"):
        run(["kubernetes", "manifest", *(word for network in deny for word in ("--deny", network))])


class Reviews:
    """A cluster that allows everything but one right."""

    namespace = "team"

    def __init__(self, refused: Right | None) -> None:
        self.refused, self.asked = refused, list[Right]()

    def request(self, _method: str, _path: str, body: Any) -> dict[str, Any]:
        asked = body["spec"]["resourceAttributes"]
        part = f"/{asked['subresource']}" if asked["subresource"] else ""
        self.asked.append(Right(asked["verb"], asked["group"], asked["resource"] + part))
        assert asked["namespace"] == "team"
        return {"status": {"allowed": self.asked[-1] != self.refused}}


def found(refused: Right | None, reached: str = "") -> Iterator[Finding]:
    images = ("orchestrator/base:latest", "own:1")
    proof = lambda _, networks: reached if networks == ["none"] else ""  # noqa: E731
    return diagnose(Reviews(refused), proof, "/repo", images, PodSettings())  # type: ignore[arg-type]


@pytest.mark.parametrize("right", list(rights()), ids=" ".join)
def test_missing_right_is_named(right: Right) -> None:
    first, *rest = found(right)
    assert f"`{right.verb}` `{right.resource}`" in first.detail
    # Workers do without the reason of a wait, the output of services, and ports.
    needed = right.resource not in ("events", "pods/log", "pods/portforward")
    assert (first.state, first.exit_code) == (("fail", 3) if needed else ("warn", 0))
    assert bool(rest) is not needed
    # What is not tested has no finding, so that nobody looks for a mistake in it.
    assert any(one.enforced is not None for one in rest) is not needed
    assert f"`{apply_command('team')}`" in (first.hint or "")


def test_hint_is_a_command_that_gives_the_rights(capsys: pytest.CaptureFixture[str]) -> None:
    command, rest = apply_command("team").split(" | ")
    assert rest == "kubectl apply -f -"
    assert run(shlex.split(command)[1:]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert {one["kind"] for one in printed} == {*MODELS}
    assert printed[0]["metadata"]["name"] == "team"


def test_findings_say_what_was_tested() -> None:
    states = {(one.name, one.state) for one in found(None)}
    assert states == {
        ("rights", "ok"), ("image", "ok"), ("image", "unknown"), ("network policy", "ok"),
    }  # fmt: skip
    every = [one for one in found(None, "tcp:10.0.0.1:443") if one.name == "network policy"]
    # A cluster that closes only open networks does not enforce what `none` promises.
    assert [(one.state, one.enforced) for one in every] == [("warn", False), ("ok", None)]
    assert "tcp:10.0.0.1:443" in every[0].detail
    (none, _) = [one for one in found(None) if one.name == "network policy"]
    assert none.enforced
