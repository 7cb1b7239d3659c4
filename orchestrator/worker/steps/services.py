"""The services of a worker: containers that start before the worker's own and end after it.

A separate container owns the network that worker and services share: they reach each other at one
`localhost` and by name, and nothing else can reach them.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Self

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    OrchestratorError,
    StartCancelledError,
    UnfinishedError,
    UnsupportedError,
)
from orchestrator.base.events import Notice
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.project import Service, variable_prefix
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import SERVICE
from orchestrator.engine.interface.protocol import Container, ContainerEngine, Leftover
from orchestrator.engine.interface.spec import ContainerSpec, TmpfsMount
from orchestrator.engine.places.place import Place, Start, Step, StepLimits
from orchestrator.sandbox.network.network_log import NetworkFollower
from orchestrator.sandbox.sidecars.sidecar import Check, Sidecar
from orchestrator.sandbox.supervision.launch import create
from orchestrator.sandbox.supervision.verdict import Verdict
from orchestrator.state.worker.endings import DeadService, Ending
from orchestrator.worker.context import WorkerContext

HOLDER_ROLE = "holder"
SERVICE_ROLE = "service"
HOLDER_STEP = "services"
"""Name of the step whose container owns the network of the worker and its services."""
# protection: service-has-five-capabilities
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""Linux capabilities for images that start as root, give their data to another user, and continue
as that user.
"""
_LOG = 4 * 1024**2
"""Maximum size of a service's log, in bytes."""
_TMP = 64 * 1024**2
_SCRATCH = ("/tmp", "/run")  # noqa: S108  # the container's own
_HOLDER_MEMORY = 64 * 1024**2
_NOBODY = "65534:65534"
_TICK = 0.1
_PROBE = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2).close()"


class ServiceFailedError(OrchestratorError):
    """A service did not become ready, so that its worker cannot start."""


class Services:
    """The services of a worker during one attempt; they are removed when the context is left."""

    def __init__(self, worker: WorkerContext) -> None:
        """Store the arguments; no service is started."""
        self._worker = worker
        self._engine = worker.run.engine
        self._checkpoints = worker.checkpoints
        self._cancel = worker.cancel
        self._wanted = worker.config.project.services
        self._holder: Container | None = None
        self._follower: NetworkFollower | None = None
        self._sidecars: list[Sidecar] = []
        self._egress = worker.settings.egress.get(worker.settings.access.task)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # The process that resumes the run continues or removes the services.
        if not isinstance(error, EngineUnavailableError | UnfinishedError):
            self._close()

    def ready(self, place: Place) -> Verdict | None:
        """Start the services and wait until they are ready; return why the agent cannot start.

        Args:
            place: The worker's place, with the steps that `service_steps` returned.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
            OSError: The disk is full.
        """
        if not self._wanted or self._found(place):
            return None
        try:
            self._start(place)
        except EngineUnavailableError:
            raise
        except ServiceFailedError as error:
            return Verdict(Status.FAILED, Reason.SETUP_FAILED, error.message)
        except StartCancelledError:
            why = f"{self._cancel.why} before this worker started"
            return Verdict(Status.FAILED, Reason.CANCELLED, why)
        except OrchestratorError as error:
            return Verdict(Status.FAILED, Reason.ENGINE_ERROR, error.message)
        return None

    def connect(self, step: Step, start: Start) -> Start:
        """Return the start of a step; with equal access, it joins the services' network."""
        # protection: service-unreachable-from-setup-with-its-own-network
        if self._holder is None or step.spec.egress != self._egress:
            return start
        return replace(start, network_of=self._holder.id, env={**self.variables(), **start.env})

    def _found(self, place: Place) -> bool:
        """Adopt the services of an earlier process if usable; else remove them and return False."""
        noted = self._checkpoints.services()
        if noted is None:
            return False
        holder = place.step(HOLDER_STEP)
        if holder is not None and holder.id == noted:
            self._holder = holder
            self._follower = self._worker.network_log.follow(holder, again=True)
        for name in self._wanted:
            container = place.step(f"service-{name}")
            if container is not None:
                self._join(name, container)
        # Services of a worker whose task has started are never replaced.
        if self._checkpoints.launch() is not None:
            return True
        running = {sidecar.name for sidecar in self._sidecars if sidecar.end_reason() is None}
        if self._holder is not None and running == set(self._wanted):
            return True
        self._close()
        self._checkpoints.forget_services()
        return False

    def _start(self, place: Place) -> None:
        for step in (HOLDER_STEP, *(f"service-{name}" for name in self._wanted)):
            while (container := place.step(step)) is not None:
                container.remove()
        for leftover in self._leftovers("guard", "gateway"):
            self._engine.remove(leftover)
        self._worker.run.switch.idle(self._worker.number)
        # protection: service-has-no-network-if-worker-has-none
        network = self._worker.network_of(place.spec.step(HOLDER_STEP))
        holding = Start(command=("sleep", "infinity"), network=network)
        self._holder = create(place, HOLDER_STEP, holding, self._worker.ports)
        self._holder.start()
        self._follower = self._worker.network_log.follow(self._holder)
        for name, service in self._wanted.items():
            given = Start(command=service.command, env=service.env, network_of=self._holder.id)
            try:
                self._join(name, place.order(f"service-{name}", given))
            except EngineUnavailableError:
                raise
            except OrchestratorError as error:
                raise EngineError(
                    f"service `{name}` (image `{service.image}`): {error.message}",
                    key="service.unstartable",
                ) from error
        for sidecar in self._sidecars:
            self._await(sidecar, self._wanted[sidecar.name], self._holder.id)
        self._checkpoints.note_services(self._holder.id)

    def variables(self) -> dict[str, str]:
        """Return the environment variables with the addresses of the services."""
        found = {}
        for name, service in self._wanted.items():
            port = self._port(service)
            found[f"{variable_prefix(name)}_HOST"] = name
            if port is not None:
                found[f"{variable_prefix(name)}_PORT"] = str(port)
            for variable, text in service.variables.items():
                found[variable] = text.replace("{host}", name).replace("{port}", str(port or ""))
        return found

    def dead(self, ending: Ending) -> Iterator[DeadService]:
        """Report and yield the services that ended before the worker's task."""
        task_ended_at = None
        if ending.started_at is not None:
            task_ended_at = ending.started_at + timedelta(seconds=ending.duration)
        for sidecar in self._sidecars:
            try:
                ended_at = sidecar.container.state().ended_at
                if ended_at is None or (task_ended_at is not None and ended_at > task_ended_at):
                    continue
                why = sidecar.end_reason() or "ended"
            except EngineUnavailableError:
                continue
            except OrchestratorError:
                why = "was removed by another program"
            said = f"worker {self._worker.number}: service `{sidecar.name}` {why}"
            self._worker.run.emit(Notice(message=said))
            yield DeadService(sidecar.name, why, self._wanted[sidecar.name].required)

    def _close(self) -> None:
        """Remove the services. Any that cannot be removed are found by label when the run ends."""
        for sidecar in self._sidecars:
            sidecar.remove()
        self._sidecars.clear()
        if self._holder is not None:
            with suppress(OrchestratorError):
                if self._follower is not None:
                    self._follower.finish()
            with suppress(OrchestratorError):
                self._holder.remove()
        self._holder = None

    def _leftovers(self, *roles: str) -> Iterator[Leftover]:
        for role in roles:
            found = self._engine.leftovers(self._worker.labels(role=role))
            yield from (leftover for leftover in found if leftover.kind == "container")

    def _join(self, name: str, container: Container) -> None:
        log = self._worker.directory / f"service-{name}.log"
        # protection: services-log-limited
        sidecar = Sidecar(name, container, log, limit=_LOG, redactor=self._worker.run.redactor)
        self._sidecars.append(sidecar)
        sidecar.start()

    def _await(self, sidecar: Sidecar, service: Service, holder: str) -> None:
        check = self._check(sidecar, service, holder)
        deadline = time.monotonic() + service.health_timeout
        while not check.wait(_TICK):
            problem = sidecar.end_reason()
            if problem is None and time.monotonic() >= deadline:
                late = f"was not ready within {service.health_timeout:g} s"
                problem = f"{late}{sidecar.last_words()}"
            if problem is None and not self._cancel.stop_asked:
                continue
            check.stop()
            if problem is None:
                raise StartCancelledError(
                    f"the start of service `{sidecar.name}` was cancelled", key="start.cancelled"
                )
            raise ServiceFailedError(f"service `{sidecar.name}` {problem}", key="service.failed")

    def _check(self, sidecar: Sidecar, service: Service, holder: str) -> Check:
        if service.health is not None:
            command = ("sh", "-c", service.health)
            return Check(self._engine, sidecar.container.id, command, service.env)
        port = self._port(service)
        if port is None:
            # A service with neither a health command nor a port is ready when it runs.
            return Check(self._engine, holder, ("true",))
        return Check(self._engine, holder, ("python3", "-I", "-c", _PROBE, str(port)))

    def _port(self, service: Service) -> int | None:
        if service.port is not None:
            return service.port
        return next(iter(self._engine.exposed_ports(service.image)), None)


def service_steps(worker: WorkerContext) -> Iterator[Step]:
    """Yield the steps of the worker's services, after one that only owns their network."""
    services, access = worker.config.project.services, worker.settings.access.task
    if not services:
        return
    # protection: workers-network-rules-apply-to-services
    holder = ContainerSpec(
        name=f"{worker.name}-services",
        image=BASE_IMAGE,
        command=(),
        user=_NOBODY,
        workdir="/",
        labels=worker.labels(role=HOLDER_ROLE),
        egress=worker.settings.egress.get(access),
        link=worker.broker_link(access),
        extra_hosts=dict.fromkeys(services, "127.0.0.1"),
        memory=_HOLDER_MEMORY,
        pids=32,
    )
    yield Step(name=HOLDER_STEP, spec=holder, limits=StepLimits(output=0, serves=True))
    for name, service in services.items():
        # protection: services-memory-limited
        # protection: services-cpus-limited
        spec = ContainerSpec(
            name=f"{worker.name}-service-{name}",
            image=service.image,
            command=service.command,
            user="",
            workdir="",
            labels={**worker.labels(role=SERVICE_ROLE), SERVICE: name},
            env=service.env,
            mounts=tuple(
                TmpfsMount(target=target, size=size)
                for target, size in {
                    **dict.fromkeys(_SCRATCH, _TMP),
                    **dict.fromkeys(service.tmpfs, service.memory),
                }.items()
            ),
            own_program=True,
            cpus=service.cpus,
            memory=service.memory,
            pids=service.pids,
            capabilities=_CAPABILITIES,
            runtime=worker.config.isolation.runtime,
            kept_output=_LOG,
        )
        limits = StepLimits(output=_LOG, serves=True)
        yield Step(name=f"service-{name}", spec=spec, limits=limits)


def check_services(
    engine: ContainerEngine, features: EngineFeatures, config: ParallelConfig
) -> None:
    """Check that services say what their images would, and ask for nothing that is not enforced.

    Raises:
        UnsupportedError: The port of a service is not known, or its `pids` would be ignored.
    """
    is_ignored = not features.limits_services and "pids" not in config.isolation.allow_unenforced
    for name, service in config.project.services.items():
        needs_port = service.health is None or any(
            "{port}" in text for text in service.variables.values()
        )
        # protection: service-without-known-port-refused
        if not features.knows_images and service.port is None and needs_port:
            raise UnsupportedError(
                f"the engine `{engine.name}` does not know which port the service `{name}` has",
                key="service.port-unknown",
                hint=f"set `port` of the service `{name}`, or `health` if it has none",
            )
        # A recorded run no longer tells a default from the same number in a file.
        if is_ignored and service.pids != Service.model_fields["pids"].default:
            raise UnsupportedError(
                f"the engine `{engine.name}` cannot enforce `pids` of the service `{name}`",
                key="service.unlimited",
                hint="leave it out: nodes limit the processes of pods by `podPidsLimit`; "
                "or name `pids` in `allow_unenforced`",
            )
