"""Services in the Job of a place, and what the cluster records of them."""

import json
import socket
import struct
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orchestrator.base.errors import EngineError, PlaceLostError
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.interface.spec import BrokerLink, ContainerSpec, Egress, TmpfsMount
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.engine import KubernetesEngine
from orchestrator.engine.kubernetes.job_pod import JobPod, await_running
from orchestrator.engine.kubernetes.pod import check_pod, job
from orchestrator.engine.kubernetes.pod_place import PodPlace, _porter_spec
from orchestrator.engine.kubernetes.pod_services import PodService, add_services, without_services
from orchestrator.engine.places.place import PlaceSpec, Start, Step, StepLimits, Waiter
from tests.engine.kubernetes.conftest import Api
from tests.engine.kubernetes.test_channel import api_server, frame
from tests.engine.kubernetes.test_lost_pods import PODS, ended, pod
from tests.engine.kubernetes.test_pod import STEP, containers
from tests.engine.kubernetes.test_pod import spec as without
from tests.support.errors import raises

HOLDER = ContainerSpec(
    name="h", image="orchestrator/base", command=(), user="65534:65534", workdir="/", labels={},
    extra_hosts={"db": "127.0.0.1", "web": "127.0.0.1"},
)  # fmt: skip
SERVICE = ContainerSpec(
    name="s", image="redis:8", command=("--port", "$(PORT)"), user="", workdir="", labels={},
    env={"PORT": "$(6379)"}, mounts=(TmpfsMount(target="/data", size=1000),), cpus=0.5,
    memory=2**20, own_program=True, capabilities=("CHOWN", "SETUID"),
)  # fmt: skip
SERVES = StepLimits(serves=True)


def spec() -> PlaceSpec:
    steps = (
        Step(name="services", spec=HOLDER, limits=SERVES),
        Step(name="service-db", spec=SERVICE, limits=SERVES),
        *without().steps,
    )
    return replace(without(), steps=steps)


def made(*, restricted: bool = False) -> dict[str, Any]:
    described = job(without_services(spec()), frozenset(), PodSettings())
    add_services(described, spec(), images={"redis:8": "registry/redis"}, restricted=restricted)
    return described


def service(**rest: Any) -> dict[str, Any]:
    (found,) = [each for each in containers(made(**rest)) if each["name"] == "service-db"]
    return found


def test_job_with_services_has_only_fields_that_the_api_has() -> None:
    check_pod(spec())
    api = client.ApiClient(client.Configuration())
    read = api.deserialize(json.dumps(made()), "V1Job", "application/json")
    assert api.sanitize_for_serialization(read) == made()


def test_service_runs_the_program_of_its_image_and_finds_its_names() -> None:
    found = service()
    assert (found["image"], found["args"]) == ("registry/redis", ["--port", "$$(PORT)"])
    assert "command" not in found
    assert found["env"] == [{"name": "PORT", "value": "$$(6379)"}]
    pod = made()["spec"]["template"]["spec"]
    assert pod["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["db", "web"]}]
    # Only what is ordered has a channel, and the porter waits for nothing else.
    described = _porter_spec(without_services(spec()))["steps"]
    assert {"agent", "harvest"} == {*described}  # type: ignore[misc]
    others = [each for each in containers(made()) if each["name"] != "service-db"]
    assert others == [*containers(job(without(), frozenset(), PodSettings()))]


@pytest.mark.parametrize("restricted", [False, True])
def test_service_is_confined(restricted: bool) -> None:
    context = service(restricted=restricted)["securityContext"]
    assert context == {
        "runAsNonRoot": restricted,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "capabilities": {"drop": ["ALL"], **({} if restricted else {"add": ["CHOWN", "SETUID"]})},
    }
    assert made()["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    limits = {"memory": str(2**20), "cpu": "500m"}
    assert service()["resources"] == {"requests": limits, "limits": limits}
    (mount,) = service()["volumeMounts"]
    volumes = made()["spec"]["template"]["spec"]["volumes"]
    assert mount["mountPath"] == "/data"
    wanted = {"name": mount["name"], "emptyDir": {"medium": "Memory", "sizeLimit": "1000"}}
    assert wanted in volumes


def test_broker_is_ordered_although_it_only_serves_others() -> None:
    """Its command and its keys come with the order, so it is no service of its pod."""
    broker = Step(name="broker", spec=replace(STEP, link=BrokerLink()), limits=SERVES)
    described = replace(without(), steps=(broker,))
    check_pod(described)
    assert without_services(described) == described
    linked = replace(HOLDER, link=BrokerLink(broker="10.0.0.7"))
    holder = Step(name="services", spec=linked, limits=SERVES)
    assert without_services(replace(spec(), steps=(holder, *without().steps))) == without()


def test_only_services_may_run_the_program_of_their_image() -> None:
    with raises("place.step-unsupported"):
        check_pod(replace(spec(), steps=(Step(name="a", spec=replace(STEP, own_program=True)),)))


pytestmark = pytest.mark.process


@pytest.fixture
def found(cluster: Cluster) -> PodService:
    known = JobPod(cluster, "job")
    known.metadata = pod()["metadata"]
    return PodService(known, "service-db")


BEGAN, OVER = "2026-11-28T10:00:00Z", "2026-11-28T10:01:00Z"


def test_end_of_a_service_is_that_of_its_container(api: Api, found: PodService) -> None:
    running = {"name": "service-db", "state": {"running": {"startedAt": BEGAN}}}
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[running])
    at = datetime(2026, 11, 28, 10, tzinfo=UTC)
    assert (found.state().started_at, found.state().ended_at) == (at, None)
    with pytest.raises(TimeoutError):
        found.wait(0)
    how = {"exitCode": 4, "startedAt": BEGAN, "finishedAt": OVER}
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[ended("service-db", **how)])
    assert (found.state().started_at, found.state().ended_at) == (at, at.replace(minute=1))
    assert found.wait(0).exit_code == 4
    how = {"exitCode": 128, "reason": "StartError", "message": "no such program"}
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[ended("service-db", **how)])
    with pytest.raises(EngineError, match="no such program"):
        found.state()


def test_services_are_ordered_once_until_they_are_removed(api: Api, cluster: Cluster) -> None:
    place = PodPlace(cluster, spec())
    place._pod.metadata = pod()["metadata"]
    start = Start(command=SERVICE.command, network_of=f"{place._pod.job}/porter/0/1")
    ordered = place.order("service-db", start)
    ordered.start()
    again = place.step("service-db")
    assert again is not None
    assert again.id == ordered.id == f"{place._pod.job}/service-db/0/1"
    again.remove()
    assert place.step("service-db") is None
    assert place.order("service-db", start).id == ordered.id
    holder = place.order("services", Start(command=()))
    assert holder.id == f"{place._pod.job}/porter/0/1"
    assert api.asked == []
    for other in (replace(start, network_of="other/porter/0/1"), replace(start, network="x")):
        with raises("place.other-network"):
            place.order("service-db", other)


def test_ports_need_no_network(cluster: Cluster) -> None:
    """On other engines, ports of a worker without hosts need a network, which leads nowhere."""
    closed = replace(HOLDER, egress=Egress(image="", hosts=()))
    steps = (Step(name="services", spec=closed, limits=SERVES), *without().steps)
    place = PodPlace(cluster, replace(spec(), steps=steps))
    place._pod.metadata = pod()["metadata"]
    assert place.order("services", Start(command=(), network="open")).ports == {}
    labels = job(without_services(place.spec), frozenset(), PodSettings())["metadata"]["labels"]
    assert labels["orchestrator.network"] == "none"


def test_another_process_finds_a_service(
    api: Api, kubeconfig: Path, found: PodService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig)
    )
    api.answers |= {PODS: {"items": [pod()]}, f"{PODS}/pod": pod()}
    again = KubernetesEngine().adopt(found.id)
    assert isinstance(again, PodService)
    assert again.id == found.id


def status(**states: dict[str, Any]) -> dict[str, Any]:
    found = [{"name": name.replace("_", "-"), "state": state} for name, state in states.items()]
    return pod(containerStatuses=found)


def test_place_begins_when_the_images_of_services_are_there(api: Api, cluster: Cluster) -> None:
    told: list[str] = []

    def tell(why: str) -> None:
        told.append(why)
        api.answers[PODS] = {
            "items": [status(porter={"running": {}}, service_db={"terminated": {}})]
        }

    waiting = {"waiting": {"reason": "ErrImagePull", "message": "slow"}}
    api.answers[PODS] = {"items": [status(porter={"running": {}}, service_db=waiting)]}
    await_running(JobPod(cluster, "job"), ("porter",), Waiter(tell=tell), 900, ("service-db",))
    assert len(told) == 1
    assert "slow" in told[0]
    # Services would run on for ever.
    api.answers[PODS] = {"items": [status(porter={"terminated": {}}, service_db={"running": {}})]}
    with pytest.raises(PlaceLostError):
        await_running(JobPod(cluster, "job"), ("porter",), Waiter(), 900, ("service-db",))


def test_namespace_that_admits_no_root_is_an_error_with_a_way_out(
    api: Api, cluster: Cluster
) -> None:
    why = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    api.answers |= {
        PODS: {"items": []},
        "/apis/batch/v1/namespaces/agents/jobs/job": {"metadata": {}, "status": {}},
        "/api/v1/namespaces/agents/events": {"items": [{"type": "Warning", "message": why}]},
    }
    with pytest.raises(EngineError) as caught:
        await_running(JobPod(cluster, "job"), ("porter",), Waiter(), 900)
    assert why in caught.value.message
    assert "orchestrator kubernetes manifest --pod-security baseline" in caught.value.message


def test_output_of_a_service_is_read_again_after_a_cut(tmp_path: Path) -> None:
    """It is read from its beginning, of which nothing comes twice."""
    texts = [b"one\n", b"one\ntwo\n"]

    def answer(stream: socket.socket) -> None:
        text = texts.pop(0)
        stream.sendall(frame(2, text[:3]) + frame(2, text[3:]))
        if not texts:
            stream.sendall(frame(8, struct.pack(">H", 1000)))

    with api_server(tmp_path, answer, connections=2) as (cluster, requests):
        known = JobPod(cluster, "job")
        known.metadata = pod()["metadata"]
        found = Ending(known)
        said = b"".join(chunk.data for chunk in found.logs())
    assert said == b"one\ntwo\n"
    line = requests[0].partition("\r\n")[0]
    assert "/pods/pod/log?container=service-db&follow=true&limitBytes=4194304" in line


class Ending(PodService):
    """A service of which the cluster says at the second time that it has ended."""

    def __init__(self, known: JobPod, ends: int = 2) -> None:
        super().__init__(known, "service-db")
        self._ends = ends

    def state(self) -> Any:
        self._ends -= 1
        return type("State", (), {"ended_at": None if self._ends else BEGAN})


def test_output_of_a_service_is_bounded(tmp_path: Path) -> None:
    def answer(stream: socket.socket) -> None:
        for _ in range(10):
            stream.sendall(frame(2, bytes(2**20)))

    with api_server(tmp_path, answer) as (cluster, _):
        known = JobPod(cluster, "job")
        known.metadata = pod()["metadata"]
        said = sum(len(chunk.data) for chunk in Ending(known, 5).logs())
    assert said == 4 * 2**20
