"""The Job of a place, without a cluster."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from kubernetes import client

from orchestrator.base.errors import UnsupportedError
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.spec import (
    BindMount,
    BrokerLink,
    ContainerSpec,
    Egress,
    TmpfsMount,
)
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.manifest import manifest
from orchestrator.engine.kubernetes.network_proof import proof_job
from orchestrator.engine.kubernetes.pod import (
    PORTER_USER,
    check_pod,
    job,
    job_name,
    selectable,
)
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.kubernetes.pod_step import PodStep
from orchestrator.engine.places.place import Part, PlaceSpec, Start, Step, StepLimits
from orchestrator.network.gateway.allowed_host import BROKER_PORT, AllowedHost
from tests.support.errors import raises

STEP = ContainerSpec(
    name="x", image="orchestrator/base", command=("sesame",), user="20001:20001", workdir="/",
    labels={}, env={"TOKEN": "sesame"}, mounts=(TmpfsMount(target="/tmp", size=1000),), cpus=2.0,
)  # fmt: skip


def spec(**rest: Any) -> PlaceSpec:
    def part(name: str, *seen_by: str, read_only: bool = False, in_memory: bool = False) -> Part:
        mount = BindMount(source=Path("/x"), target=f"/{name}", read_only=read_only)
        return Part(name=name, mount=mount, seen_by=frozenset(seen_by), in_memory=in_memory)

    described = PlaceSpec(
        name="orchestrator-1",
        labels={"orchestrator.repository": "/a/path", "orchestrator.run": "1"},
        parts=(
            part("tree", "agent", "harvest"),
            part("git", "harvest", read_only=True),
            part("keys", "agent", read_only=True, in_memory=True),
        ),
        steps=(
            Step(name="agent", spec=STEP, limits=StepLimits(timeout=60, limited=("tree",))),
            Step(name="harvest", spec=STEP, after="agent"),
        ),
    )
    return replace(described, **rest)


WORKERS = BrokerLink(broker="10.0.0.7")


def linked(link: BrokerLink | None) -> PlaceSpec:
    """Return a place whose agent has a connection to the broker, or is the broker."""
    agent, *others = spec().steps
    return spec(steps=(replace(agent, spec=replace(agent.spec, link=link)), *others))


def containers(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pod = described["spec"]["template"]["spec"]
    yield from (*pod["initContainers"], *pod["containers"])


@pytest.mark.parametrize("link", [None, WORKERS, BrokerLink()], ids=["none", "linked", "broker"])
def test_job_has_only_fields_that_the_api_has(link: BrokerLink | None) -> None:
    described = job(linked(link), frozenset({"git"}), PodSettings(), (1, 36))
    api = client.ApiClient(client.Configuration())
    made = api.deserialize(json.dumps(described), "V1Job", "application/json")
    assert api.sanitize_for_serialization(made) == described


POLICY, REPLACEMENT = "podFailurePolicy", "podReplacementPolicy"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((0, 0), set()), ((1, 20), set()), ((1, 30), set()),
        ((1, 31), {POLICY}), ((1, 33), {POLICY}),
        ((1, 34), {POLICY, REPLACEMENT}), ((1, 36), {POLICY, REPLACEMENT}),
        ((2, 0), {POLICY, REPLACEMENT}),
    ],
)  # fmt: skip
def test_cluster_replaces_no_pod_where_it_can_do_without(
    version: tuple[int, int], expected: set[str]
) -> None:
    for described in (
        job(spec(), frozenset(), PodSettings(), version)["spec"],
        proof_job("x", {}, PodSettings(), version)["spec"],
    ):
        assert described["backoffLimit"] == 0
        assert {POLICY, REPLACEMENT} & described.keys() == expected
        # A server accepts the policy only for pods whose containers are never started again.
        assert described["template"]["spec"]["restartPolicy"] == "Never"
        if POLICY in expected:
            (rule,) = described[POLICY]["rules"]
            assert rule == {
                "action": "FailJob",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
            }
        assert described.get(REPLACEMENT) in (None, "Failed")


def test_pods_of_a_run_are_spread_over_nodes() -> None:
    described = job(spec(), frozenset(), PodSettings())["spec"]["template"]
    (spread,) = described["spec"]["topologySpreadConstraints"]
    chosen = spread["labelSelector"]["matchLabels"]
    assert chosen
    assert chosen.items() <= described["metadata"]["labels"].items()
    # One node with room is enough.
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


@pytest.mark.parametrize("timeout", [9000.0, None])
def test_runs_can_be_ordered_as_long_as_the_pod_lives(timeout: float | None) -> None:
    steps = tuple(replace(step, limits=StepLimits(timeout=timeout)) for step in spec().steps)
    described = job(spec(steps=steps), frozenset(), PodSettings())
    named = [found for found in containers(described) if found["name"][-2:] in ("-1", "-2")]
    waits = [int(found["command"][5]) for found in named]
    lifetime = described["spec"].get("activeDeadlineSeconds", 24 * 3600)
    assert len(waits) == 4
    assert min(waits) >= lifetime > 9000


def test_every_container_is_hardened() -> None:
    for container in containers(job(spec(), frozenset(), PodSettings())):
        context = container["securityContext"]
        assert context["runAsNonRoot"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert (context["allowPrivilegeEscalation"], context["privileged"]) == (False, False)
        assert context["runAsUser"] > 0
        assert "memory" in container["resources"]["limits"]
    pod = job(spec(), frozenset(), PodSettings())["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


OPEN = (Step(name="agent", spec=replace(STEP, egress=Egress(image=""))),)


def policy_of(described: PlaceSpec) -> dict[str, Any]:
    """Return the only policy of the manifest that selects the pod of a place."""
    objects = yaml.safe_load_all(manifest("agents", pods=1))
    given = job(described, frozenset(), PodSettings())["spec"]["template"]["metadata"]["labels"]
    (policy,) = [
        found["spec"]
        for found in objects
        if found["kind"] == "NetworkPolicy"
        and found["spec"]["podSelector"]["matchLabels"].items() <= given.items()
    ]
    return dict(policy)


TO_BROKER = {
    "to": [{"podSelector": {"matchLabels": {"orchestrator.network": "broker"}}}],
    "ports": [{"protocol": "TCP", "port": BROKER_PORT}],
}


@pytest.mark.parametrize("link", [None, WORKERS], ids=["alone", "linked"])
def test_network_of_the_steps_chooses_the_policy_of_the_pod(link: BrokerLink | None) -> None:
    assert policy_of(linked(link)) == {
        "podSelector": {"matchLabels": {"orchestrator.network": "none"}},
        "policyTypes": ["Ingress", "Egress"],
        "egress": [TO_BROKER],
    }
    opened = policy_of(spec(steps=(*OPEN, *spec().steps[1:])))
    assert opened["podSelector"] == {"matchLabels": {"orchestrator.network": "open"}}
    assert opened["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in opened
    assert TO_BROKER in opened["egress"]


def test_only_pods_of_workers_reach_the_pod_of_the_broker_at_one_port() -> None:
    networks = [{"key": "orchestrator.network", "operator": "In", "values": ["none", "open"]}]
    peers = [{"podSelector": {"matchExpressions": networks}}]
    assert policy_of(linked(BrokerLink())) == {
        "podSelector": {"matchLabels": {"orchestrator.network": "broker"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": peers, "ports": TO_BROKER["ports"]}],
    }


def test_only_pods_with_a_network_resolve_names() -> None:
    aliases = [{"ip": "10.0.0.7", "hostnames": ["broker.internal"]}]
    closed, opened = ("None", {"nameservers": ["127.0.0.1"]}), ("ClusterFirst", None)
    for found, names, known in (
        (spec(), closed, None),
        (linked(WORKERS), closed, aliases),
        (spec(steps=OPEN), opened, None),
        (linked(BrokerLink()), opened, None),
    ):
        pod = job(found, frozenset(), PodSettings())["spec"]["template"]["spec"]
        assert (pod["dnsPolicy"], pod.get("dnsConfig")) == names
        assert pod.get("hostAliases") == known


@pytest.mark.parametrize("network", ["open", "another"])
def test_no_step_gets_a_network_that_its_pod_does_not_have(tmp_path: Path, network: str) -> None:
    place = PodPlace(cluster(tmp_path, namespace="agents"), spec())
    with raises("place.other-network"):
        place.order("agent", Start(command=("true",), network=network))


def test_every_pod_has_a_user_of_its_own() -> None:
    """The kernel counts the processes of a user, of all pods on a node."""
    pods = [job(spec(name=name), frozenset(), PodSettings()) for name in ("a", "b", "a")]
    users = [
        {c["securityContext"]["runAsUser"] for c in containers(found)} - {PORTER_USER}
        for found in pods
    ]
    (first, second, again) = [user for found in users for user in found]
    assert first == again != second
    assert {first, second} <= {*range(200_000, 2_000_000)}


def test_shim_gets_the_limits_of_its_step() -> None:
    step = Step(name="agent", spec=replace(STEP, pids=100, open_files=77))
    described = {
        c["name"]: c for c in containers(job(spec(steps=(step,)), frozenset(), PodSettings()))
    }
    processes, files = map(int, described["agent-1"]["command"][-2:])
    assert files == 77
    # The kernel also counts the second container of the step, which waits, and that of the files.
    assert processes == 102


def test_entered_command_gets_the_limits_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, run = JobPod(cluster(tmp_path, namespace="agents"), "x"), Mock()
    pod.metadata = {"uid": "1"}
    monkeypatch.setattr(pod, "run", run)
    PodStep(pod, "agent", 1).enter(("ls", "-l"), None)
    container, command, _ = run.call_args.args
    assert (container, command[-2:]) == ("agent-1", ("ls", "-l"))
    assert "/proc/1/limits" in command[2]


def test_no_command_and_no_variable_of_a_step_is_in_the_job() -> None:
    assert "sesame" not in json.dumps(job(spec(), frozenset(), PodSettings()))


def test_steps_see_their_parts_and_no_files_of_the_porter() -> None:
    described = job(spec(), frozenset({"git"}), PodSettings())
    seen = {
        container["name"]: {
            (mount["name"], mount["readOnly"], mount.get("subPath"))
            for mount in container["volumeMounts"]
            if not mount["name"].startswith("memory-")
        }
        for container in containers(described)
    }
    tree = ("part-tree", False, "files")
    agent = {("channel-agent", True, None), tree, ("part-keys", True, "files")}
    harvest = {("channel-harvest", True, None), tree, ("part-git", True, "file")}
    assert (seen["agent-1"], seen["agent-2"]) == (agent, agent)
    assert (seen["harvest-1"], seen["harvest-2"]) == (harvest, harvest)
    volumes = {v["name"]: v["emptyDir"] for v in described["spec"]["template"]["spec"]["volumes"]}
    in_memory = {name for name, given in volumes.items() if given.get("medium") == "Memory"}
    assert {"part-keys", "channel-agent", "channel-harvest"} <= in_memory
    assert "part-tree" not in in_memory


def test_a_cluster_replaces_nothing_in_commands() -> None:
    for container in containers(job(spec(), frozenset(), PodSettings())):
        for word in container["command"]:
            assert "$" not in word.replace("$$", "")


def test_names_and_labels_are_those_that_a_cluster_accepts() -> None:
    assert job_name(spec()) == "orchestrator-1"
    long = [job_name(spec(name=f"{'x' * 60}{n}")) for n in (1, 2)]
    assert len({*long}) == 2
    assert max(map(len, long)) <= 52
    given = selectable({"a": "/a/path", "b": "2026-11-26T10:00:00+00:00", "c": "agent", "d": ""})
    assert (given["c"], given["d"]) == ("agent", "")
    assert all(len(text) <= 63 and text.replace("-", "").isalnum() for text in [given["a"]])


@pytest.mark.parametrize("user", ["0:0", "", "root", "65123:65123"])
def test_steps_never_run_as_root_or_as_the_porter(user: str) -> None:
    step = Step(name="agent", spec=replace(STEP, user=user))
    with pytest.raises(UnsupportedError):
        check_pod(spec(steps=(step,)))


def test_services_and_allow_lists_are_refused() -> None:
    listed = Egress(image="", hosts=(AllowedHost(name="a.example"),))
    learns = Egress(image="", hosts=(), learn=True)
    for change in (
        {"own_program": True}, {"egress": listed}, {"egress": learns}
    ):  # fmt: skip
        with pytest.raises(UnsupportedError):
            check_pod(spec(steps=(Step(name="agent", spec=replace(STEP, **change)),)))


def cluster(tmp_path: Path, **context: str) -> Cluster:
    settings = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "x",
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(settings))
    return Cluster(kubeconfig=file)


def test_no_worker_is_in_a_namespace_that_nobody_chose(tmp_path: Path) -> None:
    with raises("cluster.no-namespace"):
        cluster(tmp_path)
    found = cluster(tmp_path, namespace="agents")
    assert (found.namespace, found.context) == ("agents", "x")


def test_settings_of_pods_are_part_of_the_job_and_of_the_proof() -> None:
    settings = PodSettings.model_validate(
        {
            "images": {BASE_IMAGE: "reg.example/base:1", "orchestrator/base": "reg.example/w"},
            "image_pull_secrets": ["team"],
            "node_selector": {"example.com/pool": "big"},
            "tolerations": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a", "value": "b"}],
            "priority_class": "low",
            "start_within": 60,
        }
    )
    steps = tuple(
        replace(step, spec=replace(STEP, runtime="sandbox"), limits=StepLimits(timeout=9))
        for step in spec().steps
    )
    check_pod(spec(steps=steps))
    described = job(spec(steps=steps), frozenset(), settings)
    template = described["spec"]["template"]["spec"]
    proof = proof_job("x", {}, settings)["spec"]["template"]["spec"]
    for pod in (template, proof):
        assert pod["imagePullSecrets"] == [{"name": "team"}]
        assert pod["nodeSelector"] == {"example.com/pool": "big"}
        assert pod["tolerations"][-2:] == [
            {"operator": "Exists", "key": "gpu", "effect": "NoSchedule"},
            {"operator": "Equal", "key": "a", "value": "b"},
        ]
        assert pod["priorityClassName"] == "low"
    assert template["runtimeClassName"] == "sandbox"
    assert len(template["tolerations"]) == 4
    assert [found["image"] for found in proof["containers"]] == ["reg.example/base:1"]
    assert {found["image"] for found in containers(described)} == {
        "reg.example/base:1", "reg.example/w",
    }  # fmt: skip
    usual = job(spec(steps=steps), frozenset(), PodSettings())["spec"]
    assert usual["activeDeadlineSeconds"] - described["spec"]["activeDeadlineSeconds"] == 840
    usual = job(spec(), frozenset(), PodSettings())["spec"]["template"]["spec"]
    assert not {"runtimeClassName", "nodeSelector", "imagePullSecrets"} & {*usual}
