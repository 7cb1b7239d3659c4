"""Pods prove that their network is closed: with a plugin that enforces policies, and without."""

import json
import re
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.interface.labels import MANAGED
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.network_proof import NetworkProof
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.places.place import Start
from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.policy import enforced
from tests.cluster.runs import present
from tests.cluster.test_command import started
from tests.cluster.test_place_contract import PodPlaces, places  # noqa: F401 - a fixture
from tests.support.errors import raises
from tests.support.live import eventually
from tests.support.model_script import Rule, Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

OTHERS = ("--allow-unenforced", "swap,tmp,tmp_inodes")
_ATTEMPT = """
import socket
others = [(f"172.30.1.{number}", 8417) for number in range(1, 40)]
for host, port in (("10.77.0.254", 6443), ("10.77.0.1", 10250), ("%s", 8418), *others):
    try:
        socket.create_connection((host, port), 0.3).close()
        print("reached", host, flush=True)
    except OSError as error:
        pass
"""


def attempt(public: str) -> str:
    """Return a task whose first packets are for the API server, the kubelet and other pods."""
    return f"python3 -c {shlex.quote(_ATTEMPT % public)} > seen"


def _run(
    lab: Lab, repo: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any], str]:
    process = started(lab, repo, *arguments, allowed=OTHERS, env=env)
    out, err = process.communicate(timeout=500)
    results = json.loads(out)["results"] if process.returncode in (0, 1) else [{}]
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")
    return process.returncode, results[0], err


@pytest.mark.parametrize("network", ["none", "open"])
def test_cluster_that_enforces_nothing_is_refused(lab: Lab, repo: Path, network: str) -> None:
    code, _, err = _run(lab, repo, "--network", network, "true")
    assert code == 3
    assert "`network`" in err
    assert f"`--network {network}` reached" in err
    assert re.search(r"tcp:10\.77\.0\.[123]:10250", err)


@pytest.mark.parametrize("after", [0.0, 5.0])
@pytest.mark.parametrize("network", ["none", "open"])
def test_task_begins_when_its_network_is_closed(
    lab: Lab, repo: Path, after: float, network: str
) -> None:
    with (
        lab.public_address() as public,
        socket.create_server((public, 8418)),
        enforced(lab, after=after),
    ):
        code, result, err = _run(lab, repo, "--network", network, attempt(public))
    assert code == 0, err
    assert "network" not in result["limits_unenforced"]
    seen = git(repo, "show", f"{result['branch']}:seen")
    assert seen == (f"reached {public}" if network == "open" else "")


@pytest.mark.docker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("keys", ["env", "broker"])
def test_program_of_a_model_works_in_an_open_pod(
    lab: Lab, repo: Path, broker_image: str, agent_image: Callable[[str], str], keys: str
) -> None:
    """Claude Code reaches its model's API at a public address, itself or through the broker."""
    lab.load(broker_image, agent_image("claude"))
    call = ToolCall(name="Bash", arguments={"command": "echo hello > hello.txt"})
    rule = Rule(task="Write the greeting", turns=(Turn(calls=(call,)), Turn(text="Done.")))
    with (
        lab.public_address() as public,
        ModelServer(Scenario((rule,)), host=public) as server,
        enforced(lab),
    ):
        code, result, err = _run(
            lab, repo, "--agent-cli", "claude", "--network", "open", "--keys", keys,
            "--models", "claude-sonnet-4-5", "Write the greeting",
            env={"ANTHROPIC_API_KEY": "the-key", "ANTHROPIC_BASE_URL": server.url},
        )  # fmt: skip
    assert code == 0, (result, err)
    assert git(repo, "show", f"{result['branch']}:hello.txt") == "hello"
    assert "network" not in result["limits_unenforced"]
    assert {exchange.key for exchange in server.exchanges} == {"the-key"}


def test_policy_that_is_enforced_no_more_stops_the_next_worker(
    lab: Lab,
    runner: Cluster,
    tmp_path: Path,
    places: PodPlaces,  # noqa: F811
) -> None:
    proof = NetworkProof(runner)
    with enforced(lab):
        assert proof.begin(str(tmp_path), ["none"]) == ""
    spec = places.spec()
    place = PodPlace(runner, spec, network=proof)
    place.put(spec.parts)
    began = time.monotonic()
    with raises("network.unenforced"):
        place.order("agent", Start(command=("true",)))
    assert time.monotonic() < began + 60
    assert place.journal(0) == []
    proof.end()


def test_network_without_anything_to_reach_proves_nothing(
    lab: Lab, runner: Cluster, tmp_path: Path
) -> None:
    """Also a canary that a policy selects is no proof: nobody knows what the policy does."""
    everything = {"podSelector": {"matchLabels": {MANAGED: "true"}}}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "everything"},
        "spec": {**everything, "policyTypes": ["Ingress", "Egress"]},
    }
    lab.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(policy))
    proof = NetworkProof(runner)
    try:
        with enforced(lab), raises("network.unproven"):
            proof.begin(str(tmp_path), ["none"])
    finally:
        proof.end()
        lab.kubectl("delete", "networkpolicy", "-n", NAMESPACE, "everything")
