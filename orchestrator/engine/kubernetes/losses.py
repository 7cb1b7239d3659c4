"""What a cluster records of pods: why they wait, how they are lost, and whether that is final."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from orchestrator.base.errors import PlaceLostError

ENDED = ("Failed", "Succeeded")
"""Phases of a pod whose containers have all ended."""
DRAINED = "it was drained, deleted or lost with its node"
LOST_NODE = [
    {"key": f"node.kubernetes.io/{problem}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 60}
    for problem in ("not-ready", "unreachable")
]  # fmt: skip
"""Until when a pod stays on a node that does not answer."""
_PROBLEMS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}
)
_FAILURE_POLICY, _REPLACEMENT_POLICY = (1, 31), (1, 34)
"""Versions of clusters from which on these parts of Jobs are stable, and cannot be switched off."""
_FAILED = ("FailureTarget", "Failed")
"""Conditions of a Job that has failed. Servers from version 1.31 on have the first one until the
pod has ended, which a node without power never reports."""
_DONE = ("SuccessCriteriaMet", "Complete")
_LATE = "DeadlineExceeded"
_UNCOLLECTED = "it was not collected before its deadline"
_TAKEN = "DisruptionTarget"
"""Condition of a pod that is about to be taken away; that may still be called off."""
_OF_NODE = ("Evicted", "TerminationByKubelet")
_NODE_IS_SHORT = "The node "
"""How a node begins to say that it evicts a pod for a lack that is not the pod's fault."""


def once(version: tuple[int, int]) -> dict[str, Any]:
    """Return what lets a Job have one pod, as far as a version of the cluster can have that.

    Replacements would only wait: whoever started the Job decides what is done again.
    """
    described: dict[str, Any] = {"backoffLimit": 0}
    if version >= _FAILURE_POLICY:
        taken = {"type": "DisruptionTarget", "status": "True"}
        rule = {"action": "FailJob", "onPodConditions": [taken]}
        described["podFailurePolicy"] = {"rules": [rule]}
    if version >= _REPLACEMENT_POLICY:
        described["podReplacementPolicy"] = "Failed"
    return described


def why_taken(pod: Mapping[str, Any]) -> str:
    """Return why a pod was taken away, as far as it says so itself; empty if it does not.

    Raises:
        PlaceLostError: The pod is to blame itself, or it has reached its deadline.
    """
    status = pod["status"]
    signs: list[Mapping[str, Any]] = [status]
    if status.get("phase") in ENDED:
        # A pod that its node ended for its own files may have no other sign, and exit code 0.
        signs += _conditions(pod, (_TAKEN,))
    sign = next((found for found in signs if found.get("reason")), status)
    reason, why = sign.get("reason"), str(sign.get("message") or sign.get("reason"))
    if reason in _OF_NODE and not why.startswith(_NODE_IS_SHORT):
        raise PlaceLostError(f"the worker's pod was evicted: {why}", key="place.disk")
    if reason == _LATE:
        raise end_of_place(_UNCOLLECTED)
    return why if reason else ""


def has_failed(job: Mapping[str, Any] | None) -> bool:
    """Return whether a Job has failed, or is about to."""
    return bool(_conditions(job, _FAILED))


def verdict(job: Mapping[str, Any], pod: Mapping[str, Any] | None, why: str) -> PlaceLostError:
    """Return the error of a pod that was lost, by what the cluster records of its Job.

    Args:
        job: The Job.
        pod: The pod, if it still exists.
        why: What is known of the pod.
    """
    # protection: no-task-after-its-deadline
    if _is_late(job, pod):
        return end_of_place(_UNCOLLECTED)
    if _conditions(job, _DONE):
        return end_of_place()
    return PlaceLostError(f"the worker's pod was lost: {why}", key="place.lost", restarts=True)


def _conditions(found: Mapping[str, Any] | None, kinds: Collection[str]) -> list[Mapping[str, Any]]:
    """Return the conditions of some kinds that a Job or a pod is in."""
    known = () if found is None else found.get("status", {}).get("conditions") or ()
    return [each for each in known if each.get("type") in kinds and each.get("status") == "True"]


def _is_late(job: Mapping[str, Any], pod: Mapping[str, Any] | None) -> bool:
    """Return whether a Job has reached its deadline, so that its pod was ended.

    Servers before version 1.31 delete the pod first, and record the reason afterwards. The times
    are those of the cluster.
    """
    if any(found.get("reason") == _LATE for found in _conditions(job, _FAILED)):
        return True
    with suppress(KeyError, TypeError, ValueError):
        metadata = {} if pod is None else pod["metadata"]
        gone = datetime.fromisoformat(metadata["deletionTimestamp"])
        gone -= timedelta(seconds=metadata["deletionGracePeriodSeconds"])
        began = datetime.fromisoformat(job["status"]["startTime"])
        return gone >= began + timedelta(seconds=job["spec"]["activeDeadlineSeconds"])
    return False


def end_of_place(why: str = "its program in the pod does not run any more") -> PlaceLostError:
    """Return the error of a place that has ended by itself."""
    return PlaceLostError(f"the place has ended: {why}", key="place.ended")


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


def problem_of(pod: Mapping[str, Any]) -> str | None:
    """Return why a container cannot be created."""
    status = pod["status"]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _PROBLEMS:
                return f"{waiting['reason']}: {waiting.get('message', '')}"
    return None


def unscheduled(pod: Mapping[str, Any]) -> str:
    """Return why no node takes a pod; empty if one does, or if that is not known."""
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""
