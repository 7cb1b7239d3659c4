"""Pods that are gone or about to go, against a stand-in for the API server."""

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import EngineError, EngineUnavailableError, PlaceLostError
from orchestrator.engine.interface.protocol import ContainerState
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.engine.kubernetes import job_pod
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.engine import KubernetesEngine
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.kubernetes.pod_step import PodStep
from orchestrator.engine.places.place import PlaceSpec, Step, Waiter
from tests.engine.kubernetes.conftest import Api
from tests.support.errors import raises

pytestmark = pytest.mark.process
PODS = "/api/v1/namespaces/agents/pods"
EVENTS = "/api/v1/namespaces/agents/events"
JOBS = "/apis/batch/v1/namespaces/agents/jobs"
JOB: dict[str, Any] = {"metadata": {"name": "job"}, "status": {}}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}


def pod(uid: str = "1", *, leaving: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": "pod", "uid": uid, "creationTimestamp": uid, "labels": {}}
    if leaving:
        metadata["deletionTimestamp"] = "now"
    return {"metadata": metadata, "status": {"phase": "Running", **status}}


def ended(name: str, **how: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": 0, "state": {"terminated": how}}


@pytest.fixture
def step(cluster: Cluster) -> PodStep:
    known = JobPod(cluster, "job")
    known.metadata = pod()["metadata"]
    return PodStep(known, "agent", 1)


def test_exit_code_is_that_of_the_cluster(api: Api, step: PodStep) -> None:
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[ended("agent-1", exitCode=3)])
    assert step.wait(1).exit_code == 3
    api.answers[f"{PODS}/pod"] = pod(
        containerStatuses=[ended("agent-1", exitCode=137, reason="OOMKilled")]
    )
    assert step.wait(1).oom_killed
    api.answers[f"{PODS}/pod"] = pod(
        containerStatuses=[ended("agent-2", exitCode=0), ended("porter", exitCode=0)]
    )
    with pytest.raises(TimeoutError):
        step.wait(0)


@pytest.mark.timeout(60)
def test_waits_for_a_silent_api_server_are_not_nested(api: Api, cluster: Cluster) -> None:
    """Calls are repeated; whether the pod still exists is asked once after each failure."""
    api.silent = 10**6
    cluster.patience = 0
    known = JobPod(cluster, "job")
    known.metadata = pod()["metadata"]
    with pytest.raises(EngineUnavailableError):
        PodStep(known, "agent", 1).again()
    assert api.asked.count(("GET", f"{PODS}/pod")) == 3


@pytest.mark.parametrize("code", [None, "0", {}])
def test_end_with_an_unreadable_code_is_an_error(api: Api, step: PodStep, code: object) -> None:
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[ended("agent-1", exitCode=code)])
    with raises("cluster.unreadable-answer"):
        step.wait(1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_end_of_a_pod_without_a_record_of_the_container_is_an_error(
    api: Api, step: PodStep, phase: str
) -> None:
    api.answers[f"{PODS}/pod"] = pod(phase=phase)
    with pytest.raises(PlaceLostError) as caught:
        step.wait(0.1)
    assert (caught.value.key, caught.value.restarts) == ("place.ended", False)


OWN = 'Usage of EmptyDir volume "memory-0-0" exceeds the limit "64Mi". '
DONE = [ended("agent-1", exitCode=0)]


@pytest.mark.parametrize(
    ("found", "job", "key", "restarts"),
    [
        pytest.param(
            pod(leaving=True, containerStatuses=DONE), JOB, "place.lost", True, id="drained",
        ),
        pytest.param(
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.",
                containerStatuses=DONE), JOB, "place.lost", True, id="the node's lack",
        ),
        pytest.param(
            pod(phase="Succeeded", reason="Evicted", message=OWN, containerStatuses=DONE),
            JOB, "place.disk", False, id="its own files",
        ),
        pytest.param(pod(reason="NodeLost"), JOB, "place.lost", True, id="unreachable node"),
        pytest.param(pod(uid="2", containerStatuses=DONE), JOB, "place.lost", True, id="replaced"),
        pytest.param(None, JOB, "place.lost", True, id="deleted"),
        pytest.param(None, {**JOB, "status": {"conditions": [FAILED]}}, "place.lost", True,
                     id="deleted, newer cluster"),
        pytest.param(None, None, "place.removed", False, id="Job deleted"),
        pytest.param(pod(leaving=True), {**JOB, "metadata": {"deletionTimestamp": "now"}},
                     "place.removed", False, id="Job is being deleted"),
        pytest.param(
            pod(leaving=True),
            {**JOB, "status": {"conditions": [{**FAILED, "reason": "DeadlineExceeded"}]}},
            "place.ended", False, id="deadline",
        ),
        pytest.param(
            pod(containerStatuses=[{"name": "agent-1", "restartCount": 1,
                                    "state": {"terminated": {"exitCode": 0}}}]),
            JOB, "place.lost", True, id="started again",
        ),
    ],
)  # fmt: skip
def test_pod_that_was_taken_away_is_never_a_success(
    api: Api, step: PodStep, found: Any, job: Any, key: str, restarts: bool
) -> None:
    api.answers |= {path: answer for path, answer in {
        f"{PODS}/pod": found, f"{JOBS}/job": job}.items() if answer}  # fmt: skip
    with pytest.raises(PlaceLostError) as caught:
        step.wait(0.1)
    assert (caught.value.key, caught.value.restarts) == (key, restarts)


BEGAN, LATE, EARLY = "2026-01-01T00:00:00Z", "2026-01-01T01:00:02Z", "2026-01-01T01:00:01Z"


def job_with(*conditions: tuple[str, str], **status: Any) -> dict[str, Any]:
    """Return a Job with a deadline of one hour, and with conditions and their reasons."""
    known = [{"type": kind, "status": "True", "reason": reason} for kind, reason in conditions]
    return {
        **JOB,
        "spec": {"activeDeadlineSeconds": 3600},
        "status": {"startTime": BEGAN, "conditions": known, **status},
    }


def leaving(at: str, **status: Any) -> dict[str, Any]:
    """Return a pod that was deleted two seconds before `at`, after which its node kills it."""
    found = pod(**status)
    found["metadata"] |= {"deletionTimestamp": at, "deletionGracePeriodSeconds": 2}
    return found


def taken(reason: str, message: str = "", status: str = "True") -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": status, "reason": reason, "message": message}


RUNS = job_with(active=1)
OUT_OF_TIME = ("place.ended", False)
LOST = ("place.lost", True)
GONE = {
    "deleted": pod(leaving=True),
    "gone": None,
    "replaced": pod("2", containerStatuses=DONE),
    "node lost": pod(reason="NodeLost"),
    "unknown, node lost": pod(phase="Unknown", reason="NodeLost"),
    "evicted for its node": pod(phase="Failed", reason="Evicted", message="The node was low on"),
    "preempted by its node": pod(phase="Failed", reason="Preempting", message="critical pod"),
    "node shut down": pod(phase="Failed", reason="Terminated", message="imminent node shutdown"),
    "not admitted": pod(phase="Failed", reason="OutOfcpu"),
    "started again": pod(containerStatuses=[{"name": "agent-1", "restartCount": 1}]),
    "taken, ended": pod(
        phase="Succeeded", containerStatuses=DONE, conditions=[taken("PreemptionByScheduler")],
    ),
    "evicted, no reason": pod(
        phase="Succeeded", containerStatuses=DONE,
        conditions=[taken("TerminationByKubelet", "The node was low on resource: memory.")],
    ),
}  # fmt: skip
JOBS_OF_LOST = {
    "active": RUNS,
    "terminating": job_with(active=0, terminating=1, uncountedTerminatedPods={"failed": ["1"]}),
    "retries used up": job_with(("FailureTarget", "BackoffLimitExceeded")),
    "by its policy": job_with(("Suspended", "x"), ("Failed", "PodFailurePolicy")),
    "suspended": job_with(("Suspended", "JobSuspended")),
    "no conditions": {**JOB, "status": {}},
    "not failed": {
        **RUNS, "status": {"conditions": [
            {"type": "Failed", "status": "False", "reason": "DeadlineExceeded"}, {"type": "x"},
        ]},
    },
}  # fmt: skip
JOBS_OF_LATE = {
    "1.20": job_with(("Failed", "DeadlineExceeded")),
    "1.31": job_with(("FailureTarget", "DeadlineExceeded")),
    "1.31, later": job_with(("FailureTarget", "DeadlineExceeded"), ("Failed", "DeadlineExceeded")),
    "lost before": job_with(("Suspended", "x"), ("FailureTarget", "DeadlineExceeded")),
    "released": job_with(("SuccessCriteriaMet", "CompletionsReached")),
    "complete": job_with(("Complete", "CompletionsReached")),
}


@pytest.mark.parametrize("found", GONE)
@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        *((name, LOST) for name in JOBS_OF_LOST),
        *((name, OUT_OF_TIME) for name in JOBS_OF_LATE),
    ],
)
def test_no_task_runs_again_after_its_deadline(
    api: Api, step: PodStep, found: str, recorded: str, expected: tuple[str, bool]
) -> None:
    job = (JOBS_OF_LOST | JOBS_OF_LATE)[recorded]
    if GONE[found]:
        api.answers[f"{PODS}/pod"] = GONE[found]
    api.answers[f"{JOBS}/job"] = job
    with pytest.raises(PlaceLostError) as caught:
        step.wait(0.1)
    assert (caught.value.key, caught.value.restarts) == expected


@pytest.mark.parametrize(
    ("found", "job", "expected"),
    [
        # Servers before 1.31 delete the pod before they record why; the times are the cluster's.
        (leaving(LATE), RUNS, OUT_OF_TIME),
        (leaving(EARLY), RUNS, LOST),
        (leaving(LATE), {**RUNS, "spec": {}}, LOST),
        (leaving(LATE), job_with(startTime=None), LOST),
        (leaving("soon"), RUNS, LOST),
        (pod(phase="Failed", reason="DeadlineExceeded"), RUNS, OUT_OF_TIME),
        (
            pod(phase="Succeeded", conditions=[taken("TerminationByKubelet", OWN)]), RUNS,
            ("place.disk", False),
        ),
        (pod(phase="Failed", reason="Evicted", message=OWN), RUNS, ("place.disk", False)),
        (pod(phase="Failed", reason="Evicted"), None, ("place.disk", False)),
        (pod(reason="NodeLost"), None, ("place.removed", False)),
    ],
)  # fmt: skip
def test_why_a_pod_was_lost(
    api: Api, step: PodStep, found: Any, job: Any, expected: tuple[str, bool]
) -> None:
    api.answers |= {f"{PODS}/pod": found, **({f"{JOBS}/job": job} if job else {})}
    with pytest.raises(PlaceLostError) as caught:
        step.wait(0.1)
    assert (caught.value.key, caught.value.restarts) == expected


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Unknown"},
        # An eviction can be called off.
        {"conditions": [taken("EvictionByEvictionAPI")]},
        {"conditions": [taken("EvictionByEvictionAPI", status="False")]},
        {"conditions": [{}], "containerStatuses": None},
        {"conditions": None},
    ],
    ids=str,
)
def test_pod_that_may_go_on_is_waited_for(api: Api, step: PodStep, status: dict[str, Any]) -> None:
    api.answers |= {f"{PODS}/pod": pod(**status), f"{JOBS}/job": RUNS}
    with pytest.raises(TimeoutError):
        step.wait(0)


@pytest.mark.parametrize("recorded", ["1.20", "1.31", "1.31, later", "lost before"])
def test_place_of_a_job_at_its_deadline_is_never_opened(
    api: Api, cluster: Cluster, recorded: str
) -> None:
    api.answers |= {PODS: {"items": []}, JOBS: JOB, f"{JOBS}/job": JOBS_OF_LATE[recorded]}
    with raises("place.ended"):
        place(cluster).put(())


def place(cluster: Cluster) -> PodPlace:
    described = ContainerSpec(
        name="x", image="x", command=(), user="20001:20001", workdir="/", labels={}
    )
    return PodPlace(
        cluster,
        PlaceSpec(name="job", labels={}, parts=(), steps=(Step(name="agent", spec=described),)),
    )


@pytest.mark.parametrize(
    "pods",
    [
        [pod(leaving=True), pod("2", containerStatuses=[
            {"name": name, "state": {"running": {}}} for name in ("porter", "files")])],
        [pod(phase="Failed")],
        [pod(phase="Succeeded"), pod("2", phase="Pending")],
        [],
    ],
    ids=["lost", "failed", "ended", "none"],
)  # fmt: skip
def test_place_is_never_opened_in_another_pod(
    api: Api, cluster: Cluster, pods: list[dict[str, Any]]
) -> None:
    job = JOB if pods else {**JOB, "status": {"conditions": [FAILED]}}
    api.answers |= {PODS: {"items": pods}, JOBS: JOB, f"{JOBS}/job": job}
    with pytest.raises(PlaceLostError):
        place(cluster).put(())
    assert not [path for _, path in api.asked if path.endswith("/exec")]


@pytest.mark.parametrize("leaving", [True, False])
def test_pod_that_is_taken_away_while_it_is_prepared_is_lost(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    def run(*_: object) -> None:
        raise EngineError("no command", key="cluster.command-refused")

    monkeypatch.setattr(JobPod, "run", run)
    containers = [{"name": name, "state": {"running": {}}} for name in ("porter", "files")]
    api.answers |= {
        PODS: {"items": [pod(containerStatuses=containers)]},
        f"{PODS}/pod": pod(leaving=leaving),
        JOBS: JOB,
        f"{JOBS}/job": JOB,
    }
    with raises("place.lost" if leaving else "cluster.command-refused"):
        place(cluster).put(())


def test_handle_of_a_step_is_that_of_its_pod(
    api: Api, kubeconfig: Path, step: PodStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig)
    )
    engine = KubernetesEngine()
    api.answers |= {PODS: {"items": [pod()]}, f"{PODS}/pod": pod(), f"{JOBS}/job": JOB}
    found = engine.adopt(step.id)
    assert found is not None
    assert found.id == step.id
    api.answers |= {PODS: {"items": [pod("2")]}, f"{PODS}/pod": pod("2")}
    with pytest.raises(PlaceLostError):
        engine.adopt(step.id)
    api.answers |= {PODS: {"items": []}}
    assert engine.adopt(step.id) is None


@pytest.mark.parametrize(
    "ask",
    [lambda step: step.wait(0), lambda step: step._pod.find(), lambda step: step.kill("SIGTERM")],
    ids=["wait", "find", "kill"],
)
def test_api_server_that_does_not_answer_is_asked_again(
    api: Api, step: PodStep, ask: Callable[[PodStep], object]
) -> None:
    api.answers |= {
        f"{PODS}/pod": pod(containerStatuses=[ended("agent-1", exitCode=3)]),
        PODS: {"items": [pod()]},
    }
    api.silent = 3
    ask(step)
    assert len(api.asked) == 4


def test_api_server_that_has_just_started_is_asked_again(api: Api, step: PodStep) -> None:
    """It knows no roles for some seconds, and forbids everything."""
    found = pod(containerStatuses=[ended("agent-1", exitCode=3)])
    api.answers |= {f"{PODS}/pod": found, "/readyz": {}}
    assert step.wait(0).exit_code == 3
    api.forbids = True
    timer = threading.Timer(0.5, lambda: setattr(api, "forbids", False))
    timer.start()
    assert step.wait(0).exit_code == 3
    timer.join()


STATUS = json.dumps({"kind": "Status", "message": "etcdserver: leader changed"})


@pytest.mark.parametrize(
    "failure",
    [
        (429, "Too many requests, please try again later."),
        (500, STATUS),
        (502, "<html>Bad Gateway</html>"),
        (503, STATUS),
        (504, STATUS),
        # A load balancer, or an API server whose paths do not exist yet.
        (404, "404 page not found"),
        (401, STATUS),
    ],
)
def test_answer_that_will_be_another_one_soon_is_asked_for_again(
    api: Api, step: PodStep, failure: tuple[int, str]
) -> None:
    found = pod(containerStatuses=[ended("agent-1", exitCode=3)])
    api.answers |= {f"{PODS}/pod": found}
    assert step.wait(0).exit_code == 3
    api.failures = [failure] * 2
    assert step.wait(0).exit_code == 3


def test_credentials_that_were_never_accepted_are_an_error_at_once(api: Api, step: PodStep) -> None:
    api.failures = [(401, STATUS)] * 2
    with raises("cluster.refused") as caught:
        step.wait(0)
    assert "`kubectl get pods`" in (caught.value.hint or "")


def test_missing_right_is_an_error_at_once(api: Api, step: PodStep) -> None:
    api.answers |= {f"{PODS}/pod": pod(), "/readyz": {}}
    with pytest.raises(TimeoutError):
        step.wait(0)
    api.forbids, api.allowed = True, ("/readyz",)
    with raises("cluster.refused"):
        step.wait(0)


def test_times_of_a_step_are_those_of_its_node(
    api: Api, step: PodStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The porter's container may have started long before its journal."""
    since = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    api.answers[f"{PODS}/pod"] = pod(containerStatuses=[{"name": "porter", **since}])
    moments = [1_800_000_000.0, 1_800_000_009.5, 1_800_000_020.0]
    entries = [
        {"number": 1, "age": 1.0, "step": "agent", "event": "started", "at": moments[0]},
        {"number": 2, "age": 10.5, "step": "agent", "event": "ended", "at": moments[1]},
        {"number": 3, "age": 21.0, "step": "agent", "event": "started", "at": moments[2]},
    ]
    monkeypatch.setattr(step._pod.porter, "call", lambda *_: {"entries": entries})
    times = [datetime.fromtimestamp(moment, UTC) for moment in moments]
    assert step.state() == ContainerState(started_at=times[0], ended_at=times[1])
    second = PodStep(step._pod, "agent", 2)
    assert second.state() == ContainerState(started_at=times[2], ended_at=None)
    entries[0]["at"] = 1e300
    with raises("place.answer-invalid"):
        step.state()


def test_removed_step_is_forgotten_by_the_number_of_its_run(
    step: PodStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(step._pod.porter, "call", lambda *words: asked.append(words))
    step.remove()
    PodStep(step._pod, "agent", 2).remove()
    assert asked == [("forget", "agent", "1"), ("forget", "agent", "2")]


def test_end_of_the_porter_is_told_with_its_reason(api: Api, step: PodStep) -> None:
    died = ended("porter", exitCode=137, reason="OOMKilled")
    api.answers |= {f"{PODS}/pod": pod(containerStatuses=[died]), f"{JOBS}/job": JOB}
    with raises("place.ended") as caught:
        step._pod.attempt("porter", ["true"])
    assert "`porter` in the pod was out of memory" in caught.value.message


def test_pod_that_cannot_be_reached_is_lost_only_if_the_cluster_says_so(
    api: Api, step: PodStep
) -> None:
    api.answers |= {f"{PODS}/pod": pod(), f"{JOBS}/job": JOB}
    with pytest.raises(EngineUnavailableError):
        step._pod.attempt("porter", ["true"])
    api.answers[f"{PODS}/pod"] = pod(leaving=True)
    with pytest.raises(PlaceLostError):
        step.kill("SIGTERM")
    assert step.again() is None


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ('pods "job-" is forbidden: no PriorityClass with name low was found', "cannot start"),
        ('pods "job-" is forbidden: exceeded quota: full', "did not start"),
    ],
)
def test_only_room_for_a_pod_is_worth_a_wait(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, said: str, error: str
) -> None:
    monkeypatch.setattr(job_pod, "_PATIENCE", 0.1)
    monkeypatch.setattr(job_pod, "_SLOW", 0.1)
    event = {"type": "Warning", "reason": "FailedCreate", "message": said, "lastTimestamp": "1"}
    api.answers = {PODS: {"items": []}, f"{JOBS}/job": JOB, EVENTS: {"items": [event]}}
    told: list[str] = []
    with pytest.raises(EngineError, match=error) as caught:
        job_pod.await_running(JobPod(cluster, "job"), ("porter",), Waiter(tell=told.append), 2)
    assert caught.value.message.endswith(said)
    assert len(told) == 1


QUOTA = 'pods "job-" is forbidden: exceeded quota: full'
ROOT = "container has runAsNonRoot and image will run as root"
PULL = "failed to resolve reference"


def waiting(**reasons: str) -> dict[str, Any]:
    """Return a pod with containers that wait, by their reason."""
    status = [
        {
            "name": reason,
            "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": why}},
        }
        for reason, why in reasons.items()
    ]
    return pod(phase="Pending", containerStatuses=status)


@pytest.mark.parametrize(
    ("pods", "event", "said", "at_once"),
    [
        ([], QUOTA, QUOTA, False),
        ([], 'serviceaccount "orchestrator-worker" not found', "kubernetes manifest`: ", True),
        ([waiting(CreateContainerConfigError=ROOT)], "", "--pod-security baseline`: ", True),
        ([waiting(ErrImagePull=PULL), waiting(ImagePullBackOff="later")], "", PULL, False),
    ],
)
def test_why_a_pod_cannot_start(
    api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch,
    pods: list[dict[str, Any]], event: str, said: str, at_once: bool,
) -> None:  # fmt: skip
    """Nobody waits for what no time mends; what helps comes before the words of the cluster."""
    monkeypatch.setattr(job_pod, "_PATIENCE", 60 if at_once else 1)
    monkeypatch.setattr(job_pod, "_SLOW", 0.1)
    events = [{"type": "Warning", "message": event, "lastTimestamp": "1"}] if event else []
    api.answers = {
        PODS: {"items": pods[:1]}, f"{JOBS}/job": JOB, EVENTS: {"items": events},
    }  # fmt: skip
    threading.Timer(0.7, lambda: api.answers.update({PODS: {"items": pods[-1:]}})).start()
    waiter = Waiter(waits_for_room=False)
    began = time.monotonic()
    with pytest.raises(EngineError) as caught:
        job_pod.await_running(JobPod(cluster, "job"), ("porter",), waiter, 900)
    assert said in caught.value.message
    assert caught.value.message.endswith(event)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((("Warning", "FailedMount"), ("Normal", "Scheduled")), "FailedMount"),
        ((("Normal", "Pulling"), ("Warning", "MissingClusterDNS")), "Pulling"),
        ((("Warning", "DNSConfigForming"), ("Normal", "Started")), ""),
    ],
)
def test_what_keeps_no_pod_from_starting_is_no_reason(
    api: Api, cluster: Cluster, events: tuple[tuple[str, str], ...], reason: str
) -> None:
    api.answers[EVENTS] = {
        "items": [
            {"type": kind, "reason": why, "message": why, "lastTimestamp": str(n)}
            for n, (kind, why) in enumerate(events)
        ]
    }
    assert JobPod(cluster, "job").reason(pod(phase="Pending")) == reason
