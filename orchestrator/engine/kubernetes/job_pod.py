"""The pod of a Job: what the cluster records of it, and commands in its containers."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orchestrator.engine.kubernetes.channel import PodProcess
from orchestrator.engine.kubernetes.cluster import Cluster, ClusterRefusedError
from orchestrator.engine.kubernetes.pod import PORTER, START, STATE, selectable
from orchestrator.engine.place import Waiter
from orchestrator.engine.porter_calls import PorterCalls
from orchestrator.errors import EngineError, NotRunningError, StartCancelledError
from orchestrator.text.sanitize import one_line

_LOOK = 0.3
_PATIENCE = 60.0
"""Seconds after which a container that cannot be created is an error."""
_SLOW = 3.0
"""Seconds after which a start is slow enough to ask why."""
_PROBLEMS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}
)
_TALK = ("python3", "-I", "-S", f"{STATE}/porter.py", STATE, "talk")


class JobPod:
    """The first pod of a Job. Later ones replace it after a loss, and get nothing."""

    def __init__(self, cluster: Cluster, job: str) -> None:
        self._cluster, self.job = cluster, job
        self.metadata: dict[str, Any] = {}
        """What names the pod; empty until it is known."""
        self.porter = PorterCalls(partial(self.talk, PORTER))

    @property
    def is_known(self) -> bool:
        """Return whether the pod was found."""
        return bool(self.metadata)

    def find(self) -> dict[str, Any] | None:
        """Return the pod; None if the Job has none.

        Raises:
            EngineError: The cluster refuses, or does not answer.
        """
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods"
        query = {"labelSelector": f"job-name={self.job}"}
        pods = self._cluster.request("GET", path, query=query)["items"]
        return min(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)

    def reason(self, pod: Mapping[str, Any] | None) -> str:
        """Return why the pod does not run yet, in the words of the cluster; empty if it is silent.

        Args:
            pod: The pod; None if it was not created.
        """
        said = "" if pod is None else _problem(pod) or _unscheduled(pod)
        if said:
            return said
        name = self.job if pod is None else pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{self._cluster.namespace}/events"
        try:
            query = {"fieldSelector": f"involvedObject.name={name}", "limit": "500"}
            events = self._cluster.request("GET", path, query=query)["items"]
        except EngineError:
            return ""
        events.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")))
        return str(events[-1].get("message", "")) if events else ""

    def status(self) -> dict[str, Any]:
        """Return the pod as the cluster records it.

        Raises:
            EngineError: The pod is gone, or another pod has its name.
        """
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{self.metadata['name']}"
        try:
            found = self._cluster.request("GET", path)
        except ClusterRefusedError as error:
            if error.status != 404:
                raise
            raise _gone() from error
        if found["metadata"]["uid"] != self.metadata["uid"]:
            raise _gone()
        return found

    def talk(self, container: str) -> PodProcess:
        """Start a command `talk` of the porter's program.

        Raises:
            EngineError: The container does not run.
        """
        try:
            return self.run(container, _TALK)
        except NotRunningError as error:
            raise EngineError("the place has ended", key="place.ended") from error

    def run(self, container: str, command: Sequence[str]) -> PodProcess:
        """Start a command in a container.

        Raises:
            EngineError: There is no pod.
        """
        if not self.is_known:
            found = self.find()
            if found is None:
                raise _gone()
            self.metadata = found["metadata"]
        return PodProcess(self._cluster, self.metadata["name"], container, command)


def await_running(
    pod: JobPod,
    containers: Sequence[str],
    waiter: Waiter,
) -> dict[str, Any]:
    """Wait until containers of the pod of a Job run, and return the pod.

    Args:
        pod: The pod.
        containers: Names of the containers.
        waiter: Waits for the pod.

    Raises:
        EngineError: The pod cannot be started, or has ended.
        StartCancelledError: Nobody waits for it any more.
    """
    began = time.monotonic()
    problem_since: float | None = None
    asked, told = began, ""
    while True:
        found = pod.find()
        if found is not None and all(is_running(found, name) for name in containers):
            return found
        phase = "" if found is None else found["status"].get("phase", "")
        is_leaving = found is not None and "deletionTimestamp" in found["metadata"]
        if is_leaving or phase in ("Failed", "Succeeded"):
            raise EngineError("the place has ended", key="place.ended")
        problem = None if found is None else _problem(found)
        now = time.monotonic()
        problem_since = (problem_since or now) if problem else None
        if problem_since is not None and now > problem_since + _PATIENCE:
            raise EngineError(f"the worker's pod cannot start: {problem}", key="pod.start")
        if phase in ("", "Pending") and waiter.has_left():
            raise StartCancelledError("the start was cancelled", key="start.cancelled")
        if now >= began + START:
            why = pod.reason(found) or "the cluster does not say why"
            raise EngineError(f"the worker's pod did not start: {why}", key="pod.start")
        if now >= asked + _SLOW:
            asked, why = now, pod.reason(found)
            if why and why != told:
                told = why
                waiter.tell(
                    f"the cluster has not started the worker's pod: {one_line(why, limit=300)}"
                )
        time.sleep(_LOOK)


def state_of(pod: Mapping[str, Any], container: str) -> dict[str, Any]:
    """Return the state of a container, empty if the cluster has no record of it."""
    for found in pod.get("status", {}).get("containerStatuses") or ():
        if found.get("name") == container:
            state: dict[str, Any] = found.get("state") or {}
            return state
    return {}


def is_running(pod: Mapping[str, Any], container: str) -> bool:
    """Return whether a container of a pod runs."""
    return "running" in state_of(pod, container)


def remove_job(cluster: Cluster, name: str) -> None:
    """Delete a Job with its pods, if it exists; the cluster ends them on its own.

    Raises:
        EngineError: The cluster refuses, or does not answer.
    """
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{name}"
    try:
        cluster.request("DELETE", path, query={"propagationPolicy": "Foreground"})
    except ClusterRefusedError as error:
        if error.status not in (404, 409):
            raise


def jobs(cluster: Cluster, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the Jobs with all of the given labels that nobody has deleted.

    Raises:
        EngineError: The cluster refuses, or does not answer.
    """
    wanted = ",".join(f"{key}={value}" for key, value in selectable(labels).items())
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"
    found = cluster.request("GET", path, query={"labelSelector": wanted})["items"]
    return [job for job in found if "deletionTimestamp" not in job["metadata"]]


def _problem(pod: Mapping[str, Any]) -> str | None:
    """Return why a container cannot be created."""
    status = pod["status"]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _PROBLEMS:
                return f"{waiting['reason']}: {waiting.get('message', '')}"
    return None


def _unscheduled(pod: Mapping[str, Any]) -> str:
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""


def _gone() -> EngineError:
    return EngineError("the worker's pod is gone: another program removed it", key="place.ended")
