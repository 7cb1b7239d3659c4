"""A worker's services: containers beside its own, started before it and gone after it.

One container of ours holds a network for all of them. They share it with the worker: each reaches
the others on one `localhost`, by name, and nobody else reaches any of them.
"""

import time
from collections.abc import Iterator
from contextlib import suppress

from orchestrator.companion import Check, Companion
from orchestrator.config import BASE_IMAGE, Service, variable_prefix
from orchestrator.context import RunContext, labels
from orchestrator.engine.base import SERVICE, Container, ContainerSpec, Leftover, TmpfsMount
from orchestrator.errors import OrchestratorError
from orchestrator.events import Notice
from orchestrator.execution import CancelButton, create
from orchestrator.pace import CalledOffError
from orchestrator.plan import WorkerSpec

HOLDER_ROLE = "holder"
SERVICE_ROLE = "service"
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""What images need that start as root, give their data to a user, and go on as that user."""
_LOG = 4 * 1024**2
"""Bytes of a service's output that are kept."""
_TMP = 64 * 1024**2
_SCRATCH = ("/tmp", "/run")  # noqa: S108  # the container's own
_HOLDER_MEMORY = 64 * 1024**2
_NOBODY = "65534:65534"
_TICK = 0.1
_PROBE = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2).close()"


class ServiceFailedError(OrchestratorError):
    """A service did not get ready, and so its worker cannot start."""


class Services:
    """The services of one worker's attempt."""

    def __init__(self, run: RunContext, spec: WorkerSpec, cancel: CancelButton) -> None:
        """Start nothing yet."""
        self._run = run
        self._spec = spec
        self._cancel = cancel
        self._wanted = run.config.project.services
        self._holder: Container | None = None
        self._companions: list[Companion] = []

    def start(self) -> str | None:
        """Start them all, and wait until they are ready.

        Returns:
            The id of the container that the worker's is to stand beside; None without services.

        Raises:
            ServiceFailedError: One of them ended, or was not ready in time.
            CalledOffError: The worker is not to start any more.
            OrchestratorError: The engine refused.
        """
        if not self._wanted:
            return None
        for leftover in self._leftovers(HOLDER_ROLE, SERVICE_ROLE, "guard"):
            self._run.engine.remove(leftover)
        ports = self._run.ports.of(self._spec.worker_id)
        self._holder = create(self._run.engine, self._describe_holder(), ports)
        self._holder.start()
        for name, service in self._wanted.items():
            spec = self._describe(name, service, self._holder.id)
            self._join(name, self._run.engine.create(spec))
        for companion in self._companions:
            self._await(companion, self._wanted[companion.name], self._holder.id)
        return self._holder.id

    def find(self) -> None:
        """Take over what another process started."""
        if not self._wanted:
            return
        for leftover in self._leftovers(HOLDER_ROLE):
            self._holder = self._run.engine.adopt(leftover.id)
        for leftover in self._leftovers(SERVICE_ROLE):
            container = self._run.engine.adopt(leftover.id)
            if container is not None:
                self._join(leftover.labels[SERVICE], container)

    def variables(self) -> dict[str, str]:
        """Tell the worker where they are."""
        found = {}
        for name, service in self._wanted.items():
            port = self._port(service)
            found[f"{variable_prefix(name)}_HOST"] = name
            if port is not None:
                found[f"{variable_prefix(name)}_PORT"] = str(port)
            for variable, text in service.variables.items():
                found[variable] = text.replace("{host}", name).replace("{port}", str(port or ""))
        return found

    def let_go(self) -> None:
        """Leave them as they are, for whoever resumes the run."""
        self._companions.clear()
        self._holder = None

    def look(self) -> None:
        """Say of each that has ended how it did: its worker may have failed for it."""
        for companion in self._companions:
            with suppress(OrchestratorError):
                ended = companion.ended()
                if ended is not None:
                    said = f"worker {self._spec.worker_id}: service `{companion.name}` {ended}"
                    self._run.emit(Notice(message=said))

    def close(self) -> None:
        """Remove them; what cannot be removed is found by its labels at the end of the run."""
        for companion in self._companions:
            companion.remove()
        if self._holder is not None:
            with suppress(OrchestratorError):
                self._holder.remove()
        self.let_go()

    def _leftovers(self, *roles: str) -> Iterator[Leftover]:
        for role in roles:
            found = self._run.engine.leftovers(labels(self._run, self._spec, role=role))
            yield from (leftover for leftover in found if leftover.kind == "container")

    def _join(self, name: str, container: Container) -> None:
        log = self._run.directory.worker(self._spec.worker_id) / f"service-{name}.log"
        companion = Companion(name, container, log, limit=_LOG, redactor=self._run.redactor)
        self._companions.append(companion)
        companion.start()

    def _await(self, companion: Companion, service: Service, holder: str) -> None:
        check = self._check(companion, service, holder)
        deadline = time.monotonic() + service.health_timeout
        while not check.wait(_TICK):
            problem = companion.ended()
            if problem is None and time.monotonic() >= deadline:
                late = f"was not ready within {service.health_timeout:g} s"
                problem = f"{late}{companion.last_words()}"
            if problem is None and not self._cancel.asked:
                continue
            check.stop()
            if problem is None:
                raise CalledOffError("called off")
            raise ServiceFailedError(f"service `{companion.name}` {problem}")

    def _check(self, companion: Companion, service: Service, holder: str) -> Check:
        if service.health is not None:
            command = ("sh", "-c", service.health)
            return Check(self._run.engine, companion.container.id, command)
        port = self._port(service)
        if port is None:
            # What has neither is ready when it runs.
            return Check(self._run.engine, holder, ("true",))
        return Check(self._run.engine, holder, ("python3", "-I", "-c", _PROBE, str(port)))

    def _port(self, service: Service) -> int | None:
        if service.port is not None:
            return service.port
        return next(iter(self._run.engine.exposed_ports(service.image)), None)

    def _describe_holder(self) -> ContainerSpec:
        """Describe what holds the network: nothing of a worker or of a service runs in it."""
        return ContainerSpec(
            name=f"{self._name}-services",
            image=BASE_IMAGE,
            command=("sleep", "infinity"),
            user=_NOBODY,
            workdir="/",
            labels=labels(self._run, self._spec, role=HOLDER_ROLE),
            network=self._run.network,
            egress=self._run.egress,
            extra_hosts=dict.fromkeys(self._wanted, "127.0.0.1"),
            memory=_HOLDER_MEMORY,
            pids=32,
        )

    def _describe(self, name: str, service: Service, holder: str) -> ContainerSpec:
        ours = labels(self._run, self._spec, role=SERVICE_ROLE)
        return ContainerSpec(
            name=f"{self._name}-service-{name}",
            image=service.image,
            command=service.command,
            user="",
            workdir="",
            labels={**ours, SERVICE: name},
            env=service.env,
            mounts=tuple(
                TmpfsMount(target=target, size=size)
                for target, size in {
                    **dict.fromkeys(_SCRATCH, _TMP),
                    **dict.fromkeys(service.tmpfs, service.memory),
                }.items()
            ),
            beside=holder,
            own_program=True,
            cpus=service.cpus,
            memory=service.memory,
            pids=service.pids,
            capabilities=_CAPABILITIES,
            runtime=self._run.config.isolation.runtime,
            kept_output=_LOG,
        )

    @property
    def _name(self) -> str:
        return f"orchestrator-{self._run.directory.run_id}-{self._spec.worker_id}"
