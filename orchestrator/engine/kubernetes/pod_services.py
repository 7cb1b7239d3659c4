"""The services of a pod: containers that run their images' own programs as long as the pod exists.

All containers of a pod start at once, and nothing stands between a service and its image: so the
command and the variables of a service are part of the Job, unlike those of steps.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, NoReturn

import websocket

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    NotRunningError,
    UnsupportedError,
)
from orchestrator.engine.interface.protocol import ContainerState, LogChunk
from orchestrator.engine.interface.spec import TmpfsMount
from orchestrator.engine.kubernetes.channel import hang_up
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.losses import state_of
from orchestrator.engine.kubernetes.pod import is_ordered, literal, resources, tmpfs_of
from orchestrator.engine.kubernetes.pod_step import PodContainer
from orchestrator.engine.places.place import PlaceSpec, Step

UNORDERED = 0
"""Number of the run in the identifiers of such containers: steps begin with the run 1."""
_LOG = 4 * 1024**2
"""Bytes of a service's output that are read; all output of the cluster's API is one stream."""
_PAUSE = 1.0
"""Seconds between two requests for a log that was cut."""


def is_service(step: Step) -> bool:
    """Return whether a step is a container of its own from the pod's start.

    The step that only owns the network of services is none: all containers of a pod share one.
    """
    return not is_ordered(step) and step.spec.own_program


def without_services(spec: PlaceSpec) -> PlaceSpec:
    """Return a place with only the steps that are ordered."""
    return replace(spec, steps=tuple(step for step in spec.steps if is_ordered(step)))


def add_services(
    job: dict[str, Any], spec: PlaceSpec, *, images: Mapping[str, str], restricted: bool
) -> None:
    """Add the services of a place to its Job.

    Args:
        job: The Job.
        spec: The place.
        images: What the cluster calls images with other names.
        restricted: Whether the namespace admits only pods without root.
    """
    pod = job["spec"]["template"]["spec"]
    hosts: dict[str, list[str]] = {}
    for step in spec.steps:
        for name, address in step.spec.extra_hosts.items():
            hosts.setdefault(address, []).append(name)
    aliases = [{"ip": ip, "hostnames": names} for ip, names in hosts.items()]
    if aliases:
        pod["hostAliases"] = [*pod.get("hostAliases", ()), *aliases]
    for step in filter(is_service, spec.steps):
        pod["containers"].append(_container(step, images, restricted=restricted))
        pod["volumes"] += [
            {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": str(tmpfs.size)}}
            for name, tmpfs in _in_memory(step)
        ]


def _container(step: Step, images: Mapping[str, str], *, restricted: bool) -> dict[str, Any]:
    spec = step.spec
    cpu = f"{max(1, round((spec.cpus or 1) * 1000))}m"
    # protection: services-of-pods-are-hardened
    # protection: services-of-pods-are-limited
    return {
        "name": step.name,
        "image": images.get(spec.image, spec.image),
        "imagePullPolicy": "IfNotPresent",
        **({"args": [literal(word) for word in spec.command]} if spec.command else {}),
        "env": [{"name": name, "value": literal(text)} for name, text in spec.env.items()],
        "securityContext": {
            "runAsNonRoot": restricted,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {
                "drop": ["ALL"],
                **({} if restricted else {"add": [*spec.capabilities]}),
            },
        },
        "resources": resources(cpu, spec.memory, cpu, spec.memory),
        "volumeMounts": [
            {"name": name, "mountPath": tmpfs.target, "readOnly": False}
            for name, tmpfs in _in_memory(step)
        ],
    }


def _in_memory(step: Step) -> Iterator[tuple[str, TmpfsMount]]:
    for number, mount in enumerate(tmpfs_of(step)):
        yield f"{step.name}-{number}", mount


class PodService(PodContainer):
    """Implements `engine.interface.protocol.Container` for a container that starts with its pod.

    It ends with the pod, too: nothing outside of it can end it alone.
    """

    def __init__(self, pod: JobPod, container: str) -> None:
        """Store the pod and the name of the container."""
        super().__init__(pod, container, f"{container}/{UNORDERED}")
        self.then: Callable[[], None] = lambda: None
        """Called when the handle is removed."""
        self._removed = threading.Event()
        self._stream: websocket.WebSocket | None = None

    def start(self) -> None:
        """Do nothing: the container started with its pod."""

    def state(self) -> ContainerState:
        """Return when the container began and ended, by the clock of its node.

        Raises:
            EngineError: The container was never started.
        """
        found = state_of(self._pod.status(), self._container)
        ended: dict[str, Any] = found.get("terminated") or {}
        if ended.get("reason") in ("StartError", "ContainerCannotRun"):
            raise EngineError(
                f"the container cannot be started: {ended.get('message')}", key="pod.start"
            )
        times: dict[str, Any] = ended or found.get("running") or {}
        return ContainerState(
            started_at=_time(times.get("startedAt")), ended_at=_time(ended.get("finishedAt"))
        )

    def again(self) -> "PodService":
        """Return a new handle, which needs no connection."""
        return PodService(self._pod, self._container)

    def logs(self) -> Iterator[LogChunk]:
        """Yield the beginning of the output, as far as the cluster still has it.

        Whatever comes while no connection exists may be missing: nodes throw away old output.
        """
        seen, is_over = 0, False
        while not is_over and not self._removed.is_set():
            is_over = self.state().ended_at is not None
            position = 0
            with suppress(EngineUnavailableError, NotRunningError):
                for data in self._log():
                    fresh = data[max(0, seen - position) :]
                    position += len(data)
                    seen = max(seen, position)
                    if fresh:
                        yield LogChunk(stream="stdout", data=fresh)
                    # protection: log-of-service-is-bounded
                    if seen >= _LOG:
                        return
            if not is_over:
                self._removed.wait(_PAUSE)

    def _log(self) -> Iterator[bytes]:
        """Yield the output from its beginning on, until the connection or the container ends."""
        query = [("container", self._container), ("follow", "true"), ("limitBytes", str(_LOG))]
        self._stream = stream = self._pod.connect("log", query, "binary.k8s.io")
        try:
            while not self._removed.is_set():
                kind, data = stream.recv_data()
                if kind == websocket.ABNF.OPCODE_CLOSE:
                    return
                yield data
        except (websocket.WebSocketException, OSError):
            return
        finally:
            stream.shutdown()

    def kill(self, signal: Literal["SIGTERM", "SIGKILL"]) -> NoReturn:  # noqa: ARG002
        """Refuse: the container ends with its pod."""
        raise UnsupportedError("a service of a pod ends with its pod", key="pod.service-kill")

    def remove(self) -> None:
        """Read no more of its output; the container ends with its pod."""
        self._removed.set()
        if self._stream is not None:
            hang_up(self._stream)
        self.then()


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
