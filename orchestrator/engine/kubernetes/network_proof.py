"""Prove from inside pods that the cluster enforces the network policies of the workers.

The API accepts policies whether or not anything enforces them. So a pod of a worker tries to reach
the API server, the kubelets, the name servers, the metadata address and another pod. It must not
reach any, while a pod that no policy selects, the canary, reaches some of them at the same time.
Only name servers are for pods with an open network, too.
"""

import json
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from secrets import token_hex
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from orchestrator.base.errors import EngineError, StartCancelledError
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE, RUN
from orchestrator.engine.kubernetes.cluster import Cluster, ClusterRefusedError, patient, remove_job
from orchestrator.engine.kubernetes.job_pod import JobPod, await_running
from orchestrator.engine.kubernetes.losses import is_running, once
from orchestrator.engine.kubernetes.pod import (
    PORTER_USER,
    hardened_pod,
    literal,
    resources,
    security,
    selectable,
)
from orchestrator.engine.kubernetes.pod_network import NETWORK
from orchestrator.engine.places.place import Waiter

_CONTAINER = "probe"
_PORT = 8417
_METADATA = ("tcp:169.254.169.254:80",)
_KUBELET = 10250
_NAME_SERVER = ":53"
"""How a name server among the targets ends."""
_PATIENCE = 30.0
"""Seconds that a cluster may take to enforce a policy for a new pod."""
_PIECE = 5.0
"""Seconds of one attempt, after which the worker can be cancelled."""
_LIFETIME = 3600
_UNUSED = 300
"""Seconds after which a pod that nobody asks ends itself, as after the death of its client."""
_MEMORY = 64 * 1024**2
_LONGEST = 64 * 1024


def _program() -> str:
    return files(__package__).joinpath("network_in_pod.py").read_text(encoding="utf-8")


class NetworkProof:
    """The canary of one client, and what pods of workers reach compared to it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = Lock()
        self._canary: JobPod | None = None

    def begin(
        self, repository: str, networks: Collection[str], settings: PodSettings | None = None
    ) -> str:
        """Find out with short pods whether the cluster enforces the policies.

        Args:
            repository: The repository's git common directory, for labels.
            networks: The networks: `none`, `open`.
            settings: The user's settings of pods. Default: none of them is set.

        Returns:
            What was reached in spite of a policy; empty if the policies are enforced.

        Raises:
            EngineError: The pods cannot be started.
        """
        self._repository, self._settings = repository, settings or PodSettings()
        why = ""
        for network in sorted(networks):
            pod = self._start("probe", {NETWORK: network})
            try:
                self._await(pod)
                why = why or self._why_not(pod, _CONTAINER, network, Waiter())
            finally:
                remove_job(self._cluster, pod.job)
        return why

    def prove(self, pod: JobPod, container: str, network: str, waiter: Waiter) -> None:
        """Prove in a worker's pod that its network is closed; wait until the policy is enforced.

        Raises:
            EngineError: The policy is not enforced for this pod, or that cannot be found out.
            StartCancelledError: Nobody waits for it any more.
        """
        why = self._why_not(pod, container, network, waiter)
        # protection: no-step-before-its-pod-proved-policy
        if why:
            raise EngineError(
                f"this cluster does not enforce the network policy: {why}", key="network.unenforced"
            )

    def end(self) -> None:
        """Remove the canary."""
        with self._lock:
            if self._canary is not None:
                with suppress(EngineError):
                    remove_job(self._cluster, self._canary.job)
                self._canary = None

    def _why_not(self, pod: JobPod, container: str, network: str, waiter: Waiter) -> str:
        control, canary = self._look()
        node = _addresses(pod.status(), "hostIP")
        known = control["targets"]
        if network == "open":
            # protection: open-pods-may-reach-name-servers-only
            known = [target for target in known if not target.endswith(_NAME_SERVER)]
        targets = [*known, *canary, *_METADATA, *_kubelets(node)]
        until = time.monotonic() + _PATIENCE
        while True:
            answer = _run(pod, container, "prove", str(_PIECE), *dict.fromkeys(targets))
            if not answer["reached"]:
                # The canary answers for the same time: a cluster without a network proves nothing.
                self._look()
                return ""
            if waiter.has_left():
                raise StartCancelledError("the start was cancelled", key="start.cancelled")
            if time.monotonic() >= until:
                reached = ", ".join(answer["reached"])
                return f"a pod of a worker with `--network {network}` reached {reached}"

    def _look(self) -> tuple[dict[str, Any], list[str]]:
        """Return what the canary tries and reaches, and the addresses at which others reach it.

        Raises:
            EngineError: The canary reaches nothing, so nothing is proven.
        """
        canary = self._living_canary()
        try:
            answer, own = self._ask(canary)
        except EngineError:
            # A cleanup may have removed it.
            answer, own = self._ask(self._living_canary())
        # protection: unreachable-canary-proves-nothing
        if not set(answer["reached"]) - set(own) or not set(own) & set(answer["reached"]):
            raise EngineError(
                "it cannot be found out whether the cluster enforces the network policy: a pod "
                "without a policy reaches nothing either",
                key="network.unproven",
                hint="apply the objects of `orchestrator kubernetes manifest` again",
            )
        return answer, own

    def _living_canary(self) -> JobPod:
        with self._lock:
            if self._canary is None or not self._lives(self._canary):
                started = self._start("canary", {})
                self._await(started)
                self._canary = started
            return self._canary

    def _ask(self, canary: JobPod) -> tuple[dict[str, Any], list[str]]:
        status = canary.status()
        own = [f"tcp:{address}:{_PORT}" for address in _addresses(status, "podIP")]
        others = [*_servers(self._cluster), *_kubelets(_addresses(status, "hostIP"))]
        return _run(canary, _CONTAINER, "look", *own, *others), own

    def _lives(self, pod: JobPod) -> bool:
        try:
            return is_running(pod.status(), _CONTAINER)
        except EngineError:
            return False

    def _start(self, role: str, labels: Mapping[str, str]) -> JobPod:
        name = f"orchestrator-{role}-{token_hex(6)}"
        own = {MANAGED: "true", RUN: name, ROLE: role, REPOSITORY: self._repository}
        path = f"/apis/batch/v1/namespaces/{self._cluster.namespace}/jobs"
        described = proof_job(name, {**own, **labels}, self._settings, self._cluster.version)
        try:
            patient(self._cluster.request)("POST", path, described)
        except ClusterRefusedError as error:
            # Nobody else knows the name: the Job was created, and the answer was lost.
            if error.reason != "AlreadyExists":
                raise
        return JobPod(self._cluster, name)

    def _await(self, pod: JobPod) -> None:
        try:
            seconds = self._settings.start_within
            # Nobody sees for what a test waits.
            waiter = Waiter(waits_for_room=False)
            pod.metadata = await_running(pod, (_CONTAINER,), waiter, seconds)["metadata"]
        except BaseException:
            remove_job(self._cluster, pod.job)
            raise


def await_reached(pod: JobPod, container: str, target: str, waiter: Waiter) -> None:
    """Wait until a worker's pod reaches the credential broker: a policy may be late to allow it.

    Raises:
        EngineError: It is not reached.
        StartCancelledError: Nobody waits for it any more.
    """
    until = time.monotonic() + _PATIENCE
    while not _run(pod, container, "reach", str(_PIECE), target)["reached"]:
        if waiter.has_left():
            raise StartCancelledError("the start was cancelled", key="start.cancelled")
        if time.monotonic() >= until:
            raise EngineError(
                f"the worker's pod does not reach the credential broker ({target})",
                key="broker.unreachable",
                hint="apply the objects of `orchestrator kubernetes manifest` again",
            )


@patient
def _run(pod: JobPod, container: str, *words: str) -> dict[str, Any]:
    """Run the program in a pod, and return its answer.

    Raises:
        EngineError: There is no answer.
    """
    process = pod.attempt(container, ("python3", "-I", "-S", "-c", _program(), *words))
    data = bytearray()
    try:
        for chunk in process.output():
            if chunk.stream == "stdout":
                data += chunk.data[: _LONGEST - len(data)]
    finally:
        process.close()
    with suppress(ValueError, TypeError):
        found = json.loads(data)
        if process.exit_code == 0 and _is_answer(found):
            return {key: list(map(str, value)) for key, value in found.items()}
    raise EngineError(
        "it cannot be found out what a pod reaches: it gave no answer", key="network.unproven"
    )


def proof_job(
    name: str,
    labels: Mapping[str, str],
    settings: PodSettings,
    version: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Return the Job of a pod that accepts connections, and in which the program can run."""
    base = settings.images.get(BASE_IMAGE, BASE_IMAGE)
    image = {"image": base, "imagePullPolicy": "IfNotPresent"}
    serve = ["python3", "-I", "-S", "-c", literal(_program()), "serve", str(_PORT), str(_UNUSED)]
    container = {
        "name": _CONTAINER,
        **image,
        "command": serve,
        "securityContext": security(PORTER_USER, PORTER_USER),
        "resources": resources("10m", _MEMORY // 2, None, _MEMORY),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": selectable(labels), "annotations": {**labels}},
        "spec": {
            **once(version),
            "activeDeadlineSeconds": _LIFETIME,
            "ttlSecondsAfterFinished": 60,
            "template": {
                "metadata": {"labels": selectable(labels)},
                "spec": {**hardened_pod([container], settings), "terminationGracePeriodSeconds": 0},
            },
        },
    }


def _is_answer(found: object) -> bool:
    return (
        isinstance(found, dict)
        and "reached" in found
        and all(isinstance(value, list) for value in found.values())
    )


def _addresses(pod: Mapping[str, Any], kind: str) -> list[str]:
    status = pod.get("status", {})
    every = [found.get("ip") for found in status.get(f"{kind}s") or ()]
    return [str(address) for address in dict.fromkeys([status.get(kind), *every]) if address]


def _kubelets(addresses: Sequence[str]) -> list[str]:
    return [f"tcp:{address}:{_KUBELET}" for address in addresses]


def _servers(cluster: Cluster) -> list[str]:
    """Return the API server as this client knows it."""
    url = urlsplit(cluster.configuration.host)
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [f"tcp:{address[4][0]}:{port}" for address in found]
