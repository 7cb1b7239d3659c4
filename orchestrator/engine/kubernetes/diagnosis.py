"""What `orchestrator doctor` finds out about a cluster."""

from collections.abc import Collection, Iterator
from typing import Any, Protocol

from orchestrator.base.errors import OrchestratorError
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.images.names import BASE_IMAGE, is_own_name
from orchestrator.engine.interface.diagnosis import Finding
from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.engine.kubernetes.manifest import Right, rights

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_HELPFUL = {
    "events": "why a pod waits is not shown",
    "pods/log": "what services print is not shown",
    "pods/portforward": "no worker can have `ports`",
}
"""Resources that workers can do without, and what is then missing."""


class Prove(Protocol):
    """Proves with short pods that network policies are enforced, as the engine does."""

    def __call__(self, repository: str, networks: Collection[str]) -> str:
        """Return what was reached."""


def diagnose(
    cluster: Cluster,
    prove: Prove,
    repository: str,
    images: tuple[str, ...],
    settings: PodSettings,
) -> Iterator[Finding]:
    """Yield what was found out about the namespace, the rights, the network and the images.

    Args:
        cluster: The cluster.
        prove: Starts short pods of the base image.
        repository: The repository's git common directory, for labels.
        images: The images that a run may use.
        settings: The user's settings of pods.
    """
    missing = [right for right in rights() if not _is_allowed(cluster, right)]
    apply = f"`{apply_command(cluster.namespace)}`, as an administrator, with its earlier options"
    yield from _missing(cluster, missing, apply)
    if any(right.resource not in _HELPFUL for right in missing):
        return
    # Without the base image there is no pod to test anything with.
    if problem := image_problem(settings, BASE_IMAGE):
        yield Finding("image", "fail", problem, push_hint(settings), 3)
        return
    try:
        reached = {network: prove(repository, [network]) for network in ("none", "open")}
    except OrchestratorError as error:
        code = error.exit_code
        yield Finding("pods", "fail", f"no pod could be tested: {error.message}", error.hint, code)
        return
    yield Finding("image", "ok", f"{_name(settings, BASE_IMAGE)} (a pod was started)")
    for image in images:
        if problem := image_problem(settings, image):
            yield Finding("image", "warn", problem, push_hint(settings))
        elif image != BASE_IMAGE:
            named = _name(settings, image)
            yield Finding("image", "unknown", f"{named}: not tested, only the nodes know")
    for network, what in reached.items():
        # Without a network is how workers are the safest: runs that need more prove it.
        enforced = not what if network == "none" else None
        if what:
            hint = f"{apply}, and a network plugin that enforces policies"
            detail = f"`{network}` is not enforced: {what}"
            yield Finding("network policy", "warn", detail, hint, enforced=enforced)
        else:
            detail = f"`{network}` is enforced (tested)"
            yield Finding("network policy", "ok", detail, enforced=enforced)


def apply_command(namespace: str) -> str:
    """Return the command with which an administrator gives a user the rights in a namespace."""
    made = f"orchestrator kubernetes manifest --namespace {namespace} --user YOU"
    return f"{made} | kubectl apply -f -"


def image_problem(settings: PodSettings, image: str) -> str:
    """Return that an image was not pushed to the user's registry; empty if it need not be."""
    if settings.registry is None or image in settings.images or not is_own_name(image):
        return ""
    return f"`{image}` was not pushed to `{settings.registry}` from this machine"


def push_hint(settings: PodSettings) -> str:
    """Return what pushes the images, and what helps users who cannot push."""
    push = f"`orchestrator image push {settings.registry}`"
    return f"{push}; if another user pushed, name the images in the setting `cluster.images`"


def _name(settings: PodSettings, image: str) -> str:
    there = settings.images.get(image)
    return f"{image}, there {there}" if there else image


def _missing(cluster: Cluster, missing: list[Right], apply: str) -> Iterator[Finding]:
    where = f"in the namespace `{cluster.namespace}`"
    if not missing:
        yield Finding("rights", "ok", f"those of the role `orchestrator`, {where}")
    for right in missing:
        loss = _HELPFUL.get(right.resource)
        said = f"no right to `{right.verb}` `{right.resource}` {where}"
        yield Finding(
            "rights", "warn" if loss else "fail", f"{said}{f': {loss}' if loss else ''}", apply,
            0 if loss else 3,
        )  # fmt: skip


def _is_allowed(cluster: Cluster, right: Right) -> bool:
    resource, _, part = right.resource.partition("/")
    asked: dict[str, Any] = {
        "namespace": cluster.namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": part,
    }
    if resource == "namespaces":
        asked["name"] = cluster.namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return cluster.request("POST", _REVIEWS, body).get("status", {}).get("allowed") is True
