"""The manifest, and what happens to users whose role lacks a right."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.engine.kubernetes.manifest import Right, manifest, rights
from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.test_command import UNENFORCED, started
from tests.cluster.test_features import do

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
ROLE = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/orchestrator"


def test_the_server_accepts_the_manifest(lab: Lab) -> None:
    made = manifest(NAMESPACE, users=["x"], groups=["y"], pods=50)
    said = lab.kubectl("apply", "--dry-run=server", "-f", "-", stdin=made)
    assert said.count("server dry run") == len(list(yaml.safe_load_all(made)))


@pytest.fixture
def role(lab: Lab) -> Iterator[None]:
    yield
    lab.kubectl("apply", "-f", "-", stdin=manifest(NAMESPACE, users=["runner"], pods=100))


def take_away(lab: Lab, right: Right) -> None:
    role = json.loads(lab.kubectl("get", "role", "orchestrator", "-n", NAMESPACE, "-o", "json"))
    role["rules"] = [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
        for each in rights()
        if each != right
    ]
    lab.kubectl("replace", "-f", "-", stdin=json.dumps(role))


@pytest.mark.usefixtures("role")
def test_every_missing_right_is_named(lab: Lab, repo: Path) -> None:
    for right in rights():
        take_away(lab, right)
        _, out, err = do(lab, repo, "doctor", "--engine", "kubernetes", "--json")
        checks = json.loads(out)["checks"]
        said = [check["detail"] for check in checks if check["state"] in ("fail", "warn")]
        names = (
            f"`{right.verb}` `{right.resource}`",
            f'cannot {right.verb} resource "{right.resource}"',
        )
        assert any(name in text for text in said for name in names), err


@pytest.mark.usefixtures("role")
def test_run_without_a_right_says_which(lab: Lab, repo: Path) -> None:
    for right in (Right("create", "batch", "jobs"), Right("get", "", "pods/exec")):
        take_away(lab, right)
        process = started(lab, repo, "true", allowed=UNENFORCED)
        out, err = process.communicate(timeout=200)
        assert process.returncode != 0
        assert f"cannot {right.verb}" in out + err
        assert right.resource in out + err
        assert "Traceback" not in out + err


def test_doctor_tells_what_is_not_enforced(lab: Lab, repo: Path) -> None:
    code, out, _ = do(lab, repo, "doctor", "--engine", "kubernetes", "--json")
    found = json.loads(out)
    assert (code, found["limits"]["network"], found["limits"]["memory"]) == (3, "no", "kernel")
