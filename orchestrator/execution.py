"""One container from start to death: its output, its deadline, its limits."""

import math
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from orchestrator.engine.base import Container, ContainerEngine, ContainerSpec, ExitStatus, Usage
from orchestrator.errors import EngineError, OrchestratorError, PortTakenError
from orchestrator.events import Emit, WorkerStarted, WorkerStopping
from orchestrator.judge import Ending
from orchestrator.logs import WorkerLog
from orchestrator.results import Reason

TICK = 0.2
"""Seconds between two looks at the clock and the cancel button."""
MEASURE = 1.0
"""Seconds between two measurements of what a container uses."""
_NEAR = 2.0
"""Seconds before a deadline in which nothing is measured."""
_PIDS_PATIENCE = 3
"""Measurements in a row at the process limit: a build may touch it, a fork bomb stays."""
_DEATH = 15.0
"""Seconds after SIGKILL by which the engine must have seen the end."""
_PORT_ATTEMPTS = 5


class Cancel:
    """The cancel button of a run: pressed once it asks, pressed hard it kills."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._killed = threading.Event()

    def press(self, *, kill: bool) -> None:
        """Ask every worker to stop; with `kill`, without waiting for its grace."""
        self._asked.set()
        if kill:
            self._killed.set()

    @property
    def asked(self) -> bool:
        """Whether the run is to stop."""
        return self._asked.is_set()

    @property
    def killed(self) -> bool:
        """Whether it is to stop without grace."""
        return self._killed.is_set()


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How long and how much a container may."""

    worker_id: int
    timeout: float | None
    grace: float
    budget: float | None
    ports: tuple[int, ...]


def free_ports(wanted: tuple[int, ...]) -> dict[int, int]:
    """Find a port on 127.0.0.1 for each of `wanted`; the engine may still find one taken."""
    with ExitStack() as stack:
        found = {}
        for port in wanted:
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found[port] = int(probe.getsockname()[1])
    return found


def port_variables(ports: Mapping[int, int]) -> dict[str, str]:
    """Tell a worker its ports: `PORT` to listen on, `ORCHESTRATOR_URL_3000` where that is seen."""
    variables = {f"ORCHESTRATOR_URL_{i}": f"http://127.0.0.1:{p}" for i, p in ports.items()}
    if ports:
        variables["PORT"] = str(next(iter(ports)))
    return variables


def execute(
    engine: ContainerEngine,
    spec: ContainerSpec,
    terms: Terms,
    *,
    log: WorkerLog,
    cancel: Cancel,
    emit: Emit,
) -> Ending:
    """Run a container to its end, whatever it does. Nothing of it is left afterwards."""
    try:
        container, ports = _start(engine, spec, terms.ports)
    except OrchestratorError as error:
        return Ending(started_at=None, duration=0.0, exit_status=None, error=error)
    started_at = datetime.now(UTC)
    started = time.monotonic()
    emit(WorkerStarted(worker_id=terms.worker_id, container=container.id, ports=ports))
    watch = _Watch(container=container, terms=terms, log=log, cancel=cancel, emit=emit)
    try:
        watch.run(started)
    except OrchestratorError as error:
        watch.error = error
    duration = (watch.ended_at or time.monotonic()) - started
    try:
        container.remove()
    except OrchestratorError as error:
        watch.error = watch.error or error
    watch.follower.join(timeout=_DEATH)
    return Ending(
        started_at=started_at,
        duration=duration,
        exit_status=watch.exit_status,
        stopped=watch.stopped,
        error=watch.error,
        ports=tuple(ports.items()),
        peak_memory=watch.peak_memory,
        limits_hit=tuple(watch.limits_hit),
    )


def _start(
    engine: ContainerEngine, spec: ContainerSpec, wanted: tuple[int, ...]
) -> tuple[Container, dict[int, int]]:
    for attempt in range(_PORT_ATTEMPTS):
        ports = free_ports(wanted)
        try:
            container = engine.start(
                replace(spec, ports=ports, env={**port_variables(ports), **spec.env})
            )
        except PortTakenError:
            if attempt == _PORT_ATTEMPTS - 1:
                raise
        else:
            return container, ports
    raise AssertionError("unreachable")


@dataclass(kw_only=True)
class _Watch:
    """Watches one running container; the follower thread reads, this one decides."""

    container: Container
    terms: Terms
    log: WorkerLog
    cancel: Cancel
    emit: Emit
    exit_status: ExitStatus | None = None
    stopped: Reason | None = None
    error: OrchestratorError | None = None
    peak_memory: int | None = None
    limits_hit: list[str] = field(default_factory=list)
    ended_at: float | None = None
    _at_pids_limit: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        name = f"follow-{self.terms.worker_id}"
        self.follower = threading.Thread(target=self._follow, name=name, daemon=True)

    def _follow(self) -> None:
        try:
            for chunk in self.container.logs():
                self.log.write(chunk)
            self.exit_status = self.container.wait(None)
        except OrchestratorError as error:
            self.error = error
        finally:
            self.ended_at = time.monotonic()
            self._ended.set()

    def run(self, started: float) -> None:
        """Return when the container is dead."""
        self.follower.start()
        measured = started
        deadline = started + (self.terms.timeout or math.inf)
        while not self._ended.wait(max(min(TICK, deadline - time.monotonic()), 0)):
            now = time.monotonic()
            # A busy engine may take long to answer, which must not move the deadline.
            if now - measured >= MEASURE and deadline - now > _NEAR:
                measured = now
                self._measure()
            self.log.tell()
            self.stopped = self._reason_to_stop(now - started)
            if self.stopped is not None:
                self._stop()
                return

    def _reason_to_stop(self, elapsed: float) -> Reason | None:
        terms = self.terms
        if terms.timeout is not None and elapsed >= terms.timeout:
            return Reason.TIMEOUT
        if self.cancel.asked:
            return Reason.CANCELLED
        if self._at_pids_limit >= _PIDS_PATIENCE:
            return Reason.PIDS
        if terms.budget is not None and (self.log.cost or 0.0) > terms.budget:
            return Reason.BUDGET
        return None

    def _measure(self) -> None:
        try:
            usage = self.container.usage()
        except EngineError:
            # Said again, and acted on, by whoever waits for the container's end.
            return
        if usage is not None:
            self._note(usage)

    def _note(self, usage: Usage) -> None:
        if usage.memory is not None:
            self.peak_memory = max(self.peak_memory or 0, usage.memory)
        at_limit = usage.pids is not None and usage.pids >= (usage.pids_limit or usage.pids + 1)
        self._at_pids_limit = self._at_pids_limit + 1 if at_limit else 0
        if at_limit and "pids" not in self.limits_hit:
            self.limits_hit.append("pids")

    def _stop(self) -> None:
        """SIGTERM, grace, SIGKILL: dead within grace + 1 s whatever the processes do."""
        reason = str(self.stopped)
        self.emit(WorkerStopping(worker_id=self.terms.worker_id, reason=reason))
        deadline = time.monotonic() + self.terms.grace
        if not self.cancel.killed and self.terms.grace > 0:
            self.container.kill("SIGTERM")
            while time.monotonic() < deadline and not self.cancel.killed:
                if self._ended.wait(min(TICK, max(deadline - time.monotonic(), 0))):
                    return
        self.container.kill("SIGKILL")
        if not self._ended.wait(_DEATH):
            self.error = EngineError(f"the container did not die within {_DEATH:.0f} s of SIGKILL")
