"""Handle of one Docker container, and calls for any container by its id."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

import docker
import docker.errors
from docker.types.daemon import CancellableStream
from tenacity import (
    retry,
    retry_if_exception_type,
    stop_after_delay,
    wait_exponential,
)

from orchestrator.base.errors import EngineError, EngineUnavailableError, NotRunningError
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.threads import meanwhile
from orchestrator.engine.docker.arguments import SHARED_NETWORK
from orchestrator.engine.docker.container_output import replay, replay_lines, timed_lines
from orchestrator.engine.docker.counters import Meter, deleted_size, layer_use, measure
from orchestrator.engine.docker.errors import is_not_running, translated
from orchestrator.engine.docker.network_filter import NetworkFilter
from orchestrator.engine.docker.process import run_in
from orchestrator.engine.docker.rules import LIST_REFUSED, refused_lines
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.labels import FILTER, GATEWAY, PORTS, SHARES
from orchestrator.engine.interface.protocol import ContainerState, ExitStatus, LogChunk, Usage
from orchestrator.engine.places.porter_calls import repeatable

# The daemon may learn of the kernel's OOM kill a moment after the process has exited.
_OOM_NOTICE_SECONDS = 3.0
_SIGKILLED = 137
_STARTS = 30.0
"""Maximum number of seconds to wait for commands that are just being started in a container."""
_LAST_CONNECTIONS = 5.0
"""Maximum number of seconds that a stopped gateway may take to end and log its connections."""
NAMES_ENDED, PROXY_ENDED = 81, 82
"""Exit codes of a gateway whose name server ended, and of a gateway whose proxy ended."""
_PROGRAMS = {
    f"exit code {NAMES_ENDED}": "its name server ended",
    f"exit code {PROXY_ENDED}": "its proxy ended",
}
_REMOVED = "another program removed it"
_NEVER = "0001-"
"""Beginning of the timestamp that Docker uses for "not yet"."""

patient = retry(
    retry=retry_if_exception_type(EngineUnavailableError),
    stop=stop_after_delay(60),
    wait=wait_exponential(multiplier=0.2, max=2),
    reraise=True,
)
"""Decorator that repeats failed calls for up to a minute, to survive a restart of the daemon. Only
for calls that are safe to repeat.
"""


class DockerContainer:
    """Implements `orchestrator.engine.interface.protocol.Container`."""

    def __init__(
        self,
        client: docker.APIClient,
        container_id: str,
        *,
        ports: Mapping[int, int],
        adopted: bool = False,
    ) -> None:
        self._client = client
        self._id = container_id
        self._killed = False
        self._is_new = not adopted
        """Whether no process can have started the container yet."""
        self.ports = ports
        self.guard: DockerContainer | None = None
        """The container that owns the network namespace; None if this container owns it."""
        self.shares_guard = False
        """Whether another container owns the guard. If not, `remove` removes the guard too."""
        self.gateway: Gateway | None = None
        """The gateway of this container's network; removed together with the container."""
        self.filter: NetworkFilter | None = None
        """The packet filter of this container's own network; None if it has none or a guard."""
        self.has_layer = False
        """Whether the container can write to its root file system."""
        self._network_over = threading.Event()
        self._stream = None if adopted else self._attach()
        self._meter = Meter(container_id, self._process)

    @property
    def id(self) -> str:
        """Return the container's id in the engine."""
        return self._id

    def _attach(self) -> "CancellableStream[Any]":
        # Attached before the start, so that no byte is lost; demux keeps stdout and stderr apart.
        with translated("attach to the container"):
            return self._client.attach(
                self._id, stdout=True, stderr=True, stream=True, logs=False, demux=True
            )

    def start(self) -> None:
        """Start the container, unless it was started before."""
        was_started = not self._is_new and self.state().started_at is not None
        self._is_new = False
        if not was_started:
            self._meter.begin()
        if self.filter is None:
            if not was_started:
                self._start()
            return
        try:
            if not was_started:
                # protection: rules-are-set-before-workers-first-instruction
                with meanwhile(partial(self.filter.apply_early, self._meter)):
                    self._start()
            # The process that started the container may have died before the rules were set.
            # protection: no-worker-runs-without-confirmed-rules
            # protection: worker-of-dead-process-gets-rules-that-it-lacks
            self._confirm_filter(self.filter)
        except BaseException:
            # protection: worker-without-confirmed-rules-is-removed
            self.remove()
            raise

    def _start(self) -> None:
        try:
            with translated("start the container"):
                self._client.start(self._id)
        finally:
            self._meter.started()

    def _confirm_filter(self, packets: NetworkFilter) -> None:
        """Check that the packet filter is set, unless the container has ended."""
        if not packets.active and not packets.apply(self._process()) and self._process():
            packets.give_up()
            raise EngineError(
                "cannot find the network of the worker to set its firewall", key="firewall.failed"
            )

    def _process(self) -> int:
        """Return the id of the main process; 0 if it does not run."""
        return int(self._state()["Pid"])

    def state(self) -> ContainerState:
        """Return when the container started and ended."""
        state = self._state()
        return ContainerState(
            started_at=_moment(state["StartedAt"]), ended_at=_moment(state["FinishedAt"])
        )

    @patient
    def again(self) -> "DockerContainer | None":
        """Return a new handle for the container after lost contact, None if it no longer exists."""
        again = adopt(self._client, self._id)
        if again is not None:
            again._network_over, again.filter = self._network_over, self.filter
        return again

    def logs(self) -> Iterator[LogChunk]:
        """Yield all output until the container ends."""
        if self._stream is None:
            self._meter.begin()
            self._meter.started()
            yield from replay(self._client, self._id)
            return
        with translated("read the container's output"):
            for stdout, stderr in self._stream:
                if stdout:
                    yield LogChunk(stream="stdout", data=stdout)
                if stderr:
                    yield LogChunk(stream="stderr", data=stderr)

    def wait(self, timeout: float | None) -> ExitStatus:
        """Block until the container ends, and return its exit status; else raise TimeoutError."""
        started = time.monotonic()
        try:
            with translated("wait for the container"):
                # requests accepts fractions of a second; the SDK's stubs do not declare this.
                exit_code = self._client.wait(self._id, timeout=timeout)["StatusCode"]  # type: ignore[arg-type]
        except EngineUnavailableError as error:
            # docker-py raises the same exceptions for a timeout and for a daemon that hung up.
            if timeout is not None and time.monotonic() - started >= timeout:
                raise TimeoutError(f"the container still runs after {timeout} s") from error
            raise
        counters = self._meter.counters()
        killed = counters.memory_kills or 0
        is_known = killed > 0 or (self._meter.is_exact and counters.memory_kills is not None)
        return ExitStatus(
            exit_code=exit_code,
            oom_killed=killed > 0 if is_known else self._oom_killed(exit_code),
            counters=counters,
        )

    def _oom_killed(self, exit_code: int) -> bool:
        """Return whether the daemon noticed a kill for memory, if the counter is unknown."""
        deadline = time.monotonic() + _OOM_NOTICE_SECONDS
        while True:
            if self._state()["OOMKilled"]:
                return True
            if exit_code != _SIGKILLED or self._killed or time.monotonic() >= deadline:
                return False
            time.sleep(0.05)

    @repeatable
    def _state(self) -> dict[str, Any]:
        with translated("inspect the container"):
            state: dict[str, Any] = self._client.inspect_container(self._id)["State"]
        return state

    @repeatable
    def kill(self, signal: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send a signal to the main process, unless the container has ended."""
        state = self._state()
        if not state["Running"]:
            return
        with translated(f"send {signal} to the container"):
            try:
                # protection: paused-containers-can-be-stopped
                if state["Paused"]:
                    self._client.unpause(self._id)
                self._killed = signal == "SIGKILL"
                self._meter.look()
                self._client.kill(self._id, signal)
            except docker.errors.APIError as error:
                if not is_not_running(error):
                    raise

    def pause(self) -> None:
        """Freeze all processes of the container, as soon as no command is just being started.

        The engine starts a command inside the container. If it is frozen meanwhile, it cannot let
        the container go on any more, nor remove it.
        """
        until = time.monotonic() + _STARTS
        while self._starts_command() and time.monotonic() < until:
            time.sleep(0.02)
        self._freeze(self._client.pause, is_paused=True)

    def _starts_command(self) -> bool:
        with translated("list the commands in the container"):
            try:
                listed = self._client.inspect_container(self._id).get("ExecIDs") or ()
                found = [self._client.exec_inspect(each) for each in listed]
            except docker.errors.NotFound:
                return False
        return any(command["Running"] and not command.get("Pid") for command in found)

    def resume(self) -> None:
        """Let the processes of a paused container go on."""
        self._freeze(self._client.unpause, is_paused=False)

    def _freeze(self, change: Callable[[str], None], *, is_paused: bool) -> None:
        with translated("pause or resume the container"):
            try:
                change(self._id)
            except docker.errors.APIError as error:
                with suppress(docker.errors.NotFound):
                    state = self._client.inspect_container(self._id)["State"]
                    if state["Running"] and bool(state["Paused"]) == is_paused:
                        return
                    if state["Running"]:
                        raise
                raise NotRunningError(
                    "the container is not running", key="container.not-running"
                ) from error

    def usage(self) -> Usage | None:
        """Return current resource usage; None if the container is not running."""
        usage = measure(self._client, self._id)
        return None if usage is None else replace(usage, deleted=deleted_size(self._id))

    def layer(self) -> DiskUse | None:
        """Measure what the container wrote to its root file system; None if it cannot."""
        return layer_use(self._client, self._id) if self.has_layer else None

    def read_counters(self) -> Counters:
        """Return what the kernel has counted for the container so far."""
        return self._meter.so_far()

    def lost_network(self) -> str | None:
        """Return why the worker's container has lost its network; None if it has not."""
        if self.guard is None:
            return None
        if self.guard.gateway is not None:
            gateway = self.guard.gateway.container
            why = _REMOVED if gateway is None else gateway.why_ended()
            if why is not None:
                return f"its gateway ended ({_PROGRAMS.get(why, why)})"
        why = self.guard.why_ended()
        return None if why is None else f"the container that owns its network ended ({why})"

    def why_ended(self) -> str | None:
        """Return why this container has ended; None if it is running or was never started."""
        with translated("inspect the container"):
            try:
                state = self._client.inspect_container(self._id)["State"]
            except docker.errors.NotFound:
                return _REMOVED
        if state["Running"] or state["StartedAt"].startswith(_NEVER):
            return None
        if state["OOMKilled"]:
            return "it needed more memory than its limit"
        return f"exit code {state['ExitCode']}"

    def network_lines(self) -> Iterator[bytes] | None:
        """Return the lines that the gateway prints, with timestamps.

        Without a gateway, but with a guard or a packet filter: one line for each place to which
        connections were refused, once `end_network` was called. Otherwise None.
        """
        if self.guard is not None and self.guard.gateway is not None:
            return self.guard.gateway.lines()
        return None if self.guard is None and self.filter is None else self._refused_lines()

    def end_network(self) -> None:
        """End this container's gateway, which then reports its open connections."""
        self._network_over.set()
        if self.guard is not None and self.guard.gateway is not None:
            self.guard.gateway.end()

    def _refused_lines(self) -> Iterator[bytes]:
        if self.filter is not None and not self.filter.active:
            # Another process set the rules, through another helper.
            self.filter.apply(self._process())
        self._network_over.wait()
        if self.filter is not None:
            yield from refused_lines(self.filter.refused())
        elif self.guard is not None:
            yield from refused_lines(run_in(self._client, self.guard.id, LIST_REFUSED))

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that this container prints, with timestamps, until it ends."""
        if self._stream is None:
            return replay_lines(self._client, self._id)
        return timed_lines(self.logs())

    def close(self) -> None:
        """Close the stream of the container's output."""
        if self._stream is not None:
            self._stream.close()

    def remove(self) -> None:
        """Remove the container and its anonymous volumes. Repeating the call is safe."""
        self._meter.look()
        remove_container(self._client, self._id)
        if self.filter is not None:
            self.filter.forget()
        if self.gateway is not None:
            self.gateway.remove()
        if self.guard is not None:
            self.guard.close()
            if not self.shares_guard:
                self.guard.remove()


class Gateway:
    """A gateway's container, and the network that the gateway shares with one worker only."""

    def __init__(
        self, client: docker.APIClient, network: str, container: DockerContainer | None = None
    ) -> None:
        self._client = client
        self.network = network
        self.container = container

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that the gateway prints, with timestamps, until it ends."""
        return iter(()) if self.container is None else self.container.lines()

    def end(self) -> None:
        """End the gateway, and wait for its end."""
        if self.container is not None:
            self.container.kill("SIGTERM")
            with suppress(TimeoutError):
                self.container.wait(_LAST_CONNECTIONS)

    def remove(self) -> None:
        """Remove the container, then the network, which must have no other members."""
        if self.container is not None:
            self.container.close()
            self.container.remove()
        remove_network(self._client, self.network)


@patient
def remove_network(client: docker.APIClient, network: str) -> None:
    """Remove a network if it still exists."""
    with translated("remove the network"), suppress(docker.errors.NotFound):
        client.remove_network(network)


def adopt(client: docker.APIClient, container_id: str) -> DockerContainer | None:
    """Return a handle of an existing container and its firewall container; None if gone."""
    with translated("inspect the container"):
        try:
            found = client.inspect_container(container_id)
        except docker.errors.NotFound:
            return None
    host: dict[str, Any] = found["HostConfig"]
    mode = host["NetworkMode"]
    guard = None
    if mode.startswith(SHARED_NETWORK):
        guard = adopt(client, mode.removeprefix(SHARED_NETWORK))
    labels: dict[str, str] = found["Config"]["Labels"]
    by_gateway = _labelled_ports(labels.get(PORTS, ""))
    ports = guard.ports if guard is not None else by_gateway or _published(host)
    container = DockerContainer(client, found["Id"], ports=ports, adopted=True)
    container.guard = guard
    container.has_layer = not host["ReadonlyRootfs"]
    container.shares_guard = bool(labels.get(SHARES))
    container.filter = NetworkFilter.labelled(found["Id"], labels.get(FILTER, ""), mode)
    gateway = labels.get(GATEWAY)
    if gateway:
        container.gateway = Gateway(client, mode, adopt(client, gateway))
    return container


def _published(host: Mapping[str, Any]) -> dict[int, int]:
    bindings: dict[str, list[dict[str, str]]] = host.get("PortBindings") or {}
    return {
        int(inside.partition("/")[0]): int(places[0]["HostPort"])
        for inside, places in bindings.items()
        if places
    }


def _labelled_ports(text: str) -> dict[int, int]:
    pairs = (pair.partition(":") for pair in text.split())
    return {int(inside): int(port) for inside, _, port in pairs}


def _moment(text: str) -> datetime | None:
    return None if text.startswith(_NEVER) else datetime.fromisoformat(text)


@patient
def remove_container(client: docker.APIClient, container_id: str) -> None:
    """Remove a container by force if it still exists."""
    with translated("remove the container"):
        try:
            # protection: anonymous-volumes-removed
            # protection: running-containers-can-be-removed
            client.remove_container(container_id, v=True, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code == 409 and "already in progress" in str(error.explanation):
                return
            raise
