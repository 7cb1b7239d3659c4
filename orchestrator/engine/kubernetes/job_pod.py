"""The pod of a Job: what the cluster records of it, and commands in its containers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import websocket
from tenacity import retry, retry_if_exception, stop_after_delay

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    NotRunningError,
    PlaceLostError,
    StartCancelledError,
)
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.interface.protocol import TerminalSize
from orchestrator.engine.kubernetes.channel import PodProcess, connect
from orchestrator.engine.kubernetes.cluster import PATIENCE, Cluster, ClusterRefusedError, patient
from orchestrator.engine.kubernetes.losses import (
    ENDED,
    end_of_place,
    has_failed,
    problem_of,
    state_of,
    unscheduled,
    verdict,
    why_taken,
)
from orchestrator.engine.kubernetes.pod import PORTER, SERVICE_ACCOUNT, STATE, selectable
from orchestrator.engine.places.place import Waiter
from orchestrator.engine.places.porter_calls import PorterCalls, pause

_LONGEST_SILENCE = 3600.0
_LOOK = 0.3
_PATIENCE = 60.0
"""Seconds after which a container that cannot be created is an error."""
_SLOW = 3.0
"""Seconds after which a start is slow enough to ask why."""
_BASELINE = (
    "services whose images start as root need a namespace that allows it, such as one of "
    "`orchestrator kubernetes manifest --pod-security baseline`"
)
_WAYS_OUT = {
    "violates PodSecurity": _BASELINE,
    "runAsNonRoot": _BASELINE,
    f'serviceaccount "{SERVICE_ACCOUNT}" not found': (
        "the namespace needs the objects of `orchestrator kubernetes manifest`"
    ),
}
"""What a cluster says of pods that it never starts, and what helps."""
_TALK = ("python3", "-I", "-S", f"{STATE}/porter.py", STATE, "talk")
_NOTES = frozenset({"MissingClusterDNS", "DNSConfigForming"})
"""Reasons of warnings about pods that start nevertheless, on many clusters again and again."""
_LATER = "ImagePullBackOff"
"""How a node begins to say that it tries again later; the reason is what it said before."""
_FULL = "exceeded quota"


def _has_not_begun(error: BaseException) -> bool:
    # protection: commands-of-users-run-once
    return isinstance(error, EngineUnavailableError) and error.key == "cluster.unreachable"


class JobPod:
    """The first pod of a Job. Later ones replace it after a loss, and get nothing."""

    def __init__(self, cluster: Cluster, job: str) -> None:
        self._cluster, self.job = cluster, job
        self.metadata: dict[str, Any] = {}
        """What names the pod; empty until it is known."""
        self.porter = self.calls(PORTER)

    def calls(self, container: str) -> PorterCalls:
        """Return calls to the porter's program in a container."""
        return PorterCalls(partial(self.attempt, container, _TALK), patience=self._cluster.patience)

    @property
    def is_known(self) -> bool:
        """Return whether the pod was found."""
        return bool(self.metadata)

    @patient
    def find(self) -> dict[str, Any] | None:
        """Return the pod; None if the Job has none, or does not exist.

        Raises:
            PlaceLostError: The pod is gone, and the Job has failed because of it.
            EngineError: The cluster refuses, or does not answer.
        """
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        query = {"labelSelector": f"job-name={self.job}"}
        pods = self._cluster.request("GET", path, query=query)["items"]
        if not pods and has_failed(self._job()):
            raise self._lost()
        return min(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def reason(self, pod: Mapping[str, Any] | None) -> str:
        """Return why the pod does not run yet, in the words of the cluster; empty if it is silent.

        Args:
            pod: The pod; None if it was not created.
        """
        said = "" if pod is None else problem_of(pod) or unscheduled(pod)
        if said:
            return said
        name = self.job if pod is None else pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{self._cluster.namespace}/events"
        try:
            query = {"fieldSelector": f"involvedObject.name={name}", "limit": "500"}
            events = self._cluster.request("GET", path, query=query)["items"]
        except EngineError:
            return ""
        # What went well is no reason, but for an image that takes long.
        events = [
            event
            for event in events
            if event.get("reason") == "Pulling"
            or (event.get("type") == "Warning" and event.get("reason") not in _NOTES)
        ]
        events.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")))
        return str(events[-1].get("message", "")) if events else ""

    def _ask(self) -> dict[str, Any]:
        """Return the pod as the cluster records it; for calls that are repeated as a whole.

        Raises:
            PlaceLostError: The pod is gone, or is about to go.
            EngineError: The cluster refuses, or does not answer.
        """
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{self.metadata['name']}"
        try:
            found = self._cluster.request("GET", path)
        except ClusterRefusedError as error:
            if error.status != 404:
                raise
            raise self._lost() from error
        # protection: only-pod-that-was-fed-counts
        if found["metadata"]["uid"] != self.metadata["uid"]:
            raise self._lost()
        self.check(found)
        return found

    status = patient(_ask)
    """Does the same, again and again while the API server does not answer."""

    @contextmanager
    def losses(self) -> Iterator[None]:
        """Let an error of a block be the loss of the pod, if the cluster takes the pod away.

        Raises:
            PlaceLostError: That is why the block failed.
        """
        try:
            yield
        except (EngineUnavailableError, PlaceLostError):
            raise
        except EngineError:
            if self.is_known:
                self.status()
            raise

    def check(self, pod: Mapping[str, Any]) -> None:
        """Check that a pod of the Job has not been taken away from it.

        Raises:
            PlaceLostError: It was evicted, deleted, or lost with its node.
        """
        reason = why_taken(pod)
        # protection: evicted-pod-is-never-success
        if reason:
            raise self._lost(reason, pod)
        # protection: pod-that-is-taken-away-is-never-success
        if "deletionTimestamp" in pod["metadata"]:
            raise self._lost(pod=pod)
        if any(found.get("restartCount") for found in pod["status"].get("containerStatuses") or ()):
            raise self._lost("its node started a container again", pod)

    def _job(self) -> dict[str, Any] | None:
        path = f"/apis/batch/v1/namespaces/{self._cluster.namespace}/jobs/{self.job}"
        try:
            return self._cluster.request("GET", path)
        except ClusterRefusedError as error:
            if error.status != 404:
                raise
            return None

    def _lost(
        self,
        why: str = "it was drained, deleted or lost with its node",
        pod: Mapping[str, Any] | None = None,
    ) -> PlaceLostError:
        """Return the error of a pod that was lost, by what the cluster records of its Job.

        Args:
            why: What is known of the pod.
            pod: The pod, if it still exists.
        """
        job = self._job()
        if job is None or "deletionTimestamp" in job["metadata"]:
            return PlaceLostError(
                "the worker's pod is gone: another program removed it", key="place.removed"
            )
        return verdict(job, pod, why)

    def attempt(self, container: str, command: Sequence[str]) -> PodProcess:
        """Start a command in a container that should run; who calls this repeats it.

        Raises:
            PlaceLostError: The container does not run any more.
            EngineUnavailableError: The container cannot be reached.
        """
        try:
            process = self.run(container, command)
        except NotRunningError as error:
            raise self.explain(error, container) from error
        except EngineUnavailableError:
            self._ask()
            raise
        process.explain = partial(self.explain, container=container)
        return process

    def explain(self, error: NotRunningError, container: str) -> EngineError:
        """Return what it means that a container of the pod does not run, according to its node.

        Raises:
            PlaceLostError: The pod is gone, or is about to go.
            EngineError: The cluster refuses, or does not answer.
        """
        found = self._ask()
        ended = state_of(found, container).get("terminated")
        if (ended or {}).get("reason") == "OOMKilled":
            return end_of_place(f"its program `{container}` in the pod was out of memory")
        if ended is not None or found["status"].get("phase") in ENDED:
            return end_of_place()
        # The node may be a moment behind: a kubelet that was started again knows no pods yet.
        return EngineUnavailableError(error.message, key="cluster.unreachable")

    @retry(
        retry=retry_if_exception(_has_not_begun),
        stop=stop_after_delay(PATIENCE),
        wait=pause(multiplier=0.2, most=5),
        reraise=True,
    )
    def enter(
        self, container: str, command: Sequence[str], terminal: TerminalSize | None
    ) -> PodProcess:
        """Start a command that must not run twice: only what cannot have begun it is repeated.

        Raises:
            NotRunningError: The container does not run.
            EngineError: The cluster refuses, or does not answer.
        """
        try:
            return self.run(container, command, terminal or False)
        except NotRunningError as error:
            why = self.explain(error, container)
            raise why if isinstance(why, EngineUnavailableError) else error from why

    def run(
        self, container: str, command: Sequence[str], stdin: TerminalSize | bool = True
    ) -> PodProcess:
        """Start a command in a container.

        Raises:
            EngineError: There is no pod.
        """
        if not self.is_known:
            found = self.find()
            if found is None:
                raise self._lost()
            self.metadata = found["metadata"]
        return PodProcess(self._cluster, self.metadata["name"], container, command, stdin)

    def connect(
        self, part: str, query: Sequence[tuple[str, str]], protocol: str
    ) -> websocket.WebSocket:
        """Open a WebSocket to a part of the pod, on which either side may be silent for long.

        Raises:
            EngineError: The cluster refuses, or does not answer.
        """
        opened = connect(self._cluster, self.metadata["name"], part, query, [protocol])
        opened.settimeout(_LONGEST_SILENCE)
        return opened


def await_running(
    pod: JobPod,
    containers: Sequence[str],
    waiter: Waiter,
    seconds: float,
    services: Sequence[str] = (),
) -> dict[str, Any]:
    """Wait until containers of the pod of a Job run, and return the pod.

    Args:
        pod: The pod.
        containers: Names of the containers.
        waiter: Waits for the pod.
        seconds: Time for the start: to find a node and to fetch images takes long.
        services: Names of containers that must have started, and may have ended.

    Raises:
        PlaceLostError: The pod has ended, or was taken away.
        EngineError: The pod cannot be started.
        StartCancelledError: Nobody waits for it any more.
    """
    began = time.monotonic()
    problem_since: float | None = None
    asked, told, cause = began, "", ""
    while True:
        found = pod.find()
        # protection: replaced-pods-run-nothing
        if found is not None:
            pod.check(found)
            if _have_started(found, containers, services):
                return found
        phase = "" if found is None else found["status"].get("phase", "")
        if phase in ENDED:
            raise end_of_place()
        problem = _obstacle(found, told, waiter)
        if problem and not problem.startswith(_LATER):
            cause = problem
        now = time.monotonic()
        problem_since = (problem_since or now) if problem else None
        way_out = next((way for said, way in _WAYS_OUT.items() if said in problem), None)
        if problem_since is not None and (way_out or now > problem_since + _PATIENCE):
            said = f"{way_out}: {problem}" if way_out else cause or problem
            raise EngineError(f"the pod cannot start: {one_line(said, limit=500)}", key="pod.start")
        if phase in ("", "Pending") and waiter.has_left():
            raise StartCancelledError("the start was cancelled", key="start.cancelled")
        if now >= began + seconds:
            why = pod.reason(found) or "the cluster does not say why"
            raise EngineError(f"the pod did not start: {why}", key="pod.start")
        if now >= asked + _SLOW:
            asked, told = now, _tell(waiter, pod.reason(found), told)
        time.sleep(_LOOK)


def _tell(waiter: Waiter, why: str, told: str) -> str:
    """Tell why a pod has not started, unless that was told; return what was told last."""
    if not why or why == told:
        return told
    waiter.tell(f"the cluster has not started the worker's pod: {one_line(why, limit=300)}")
    return why


def _obstacle(pod: Mapping[str, Any] | None, told: str, waiter: Waiter) -> str:
    """Return what keeps a pod from starting; empty if that is worth a long wait, as room is.

    No class and no image is created meanwhile.
    """
    if pod is None:
        return "" if waiter.waits_for_room and _FULL in told else told
    return problem_of(pod) or ("" if waiter.waits_for_room else unscheduled(pod))


def _have_started(
    pod: Mapping[str, Any], containers: Sequence[str], services: Sequence[str]
) -> bool:
    """Return whether containers run, and services have started.

    So the time to become ready does not include that for fetching the images of services.

    Raises:
        PlaceLostError: One of `containers` has ended; services run on without it.
    """
    states = [state_of(pod, name) for name in containers]
    if any("terminated" in state for state in states):
        raise end_of_place()
    begun = all(state_of(pod, name).keys() & {"running", "terminated"} for name in services)
    return begun and all("running" in state for state in states)


def jobs(cluster: Cluster, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the Jobs with all of the given labels that nobody has deleted.

    Raises:
        EngineError: The cluster refuses, or does not answer.
    """
    wanted = ",".join(f"{key}={value}" for key, value in selectable(labels).items())
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
    found = cluster.request("GET", path, query={"labelSelector": wanted})["items"]
    return [job for job in found if "deletionTimestamp" not in job["metadata"]]
