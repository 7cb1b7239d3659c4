"""A step of a place in a pod: a container that has waited for its command."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from orchestrator.base.errors import EngineError, EngineUnavailableError, UnsupportedError
from orchestrator.base.events import Stream
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import (
    ContainerState,
    ExitStatus,
    LogChunk,
    TerminalSize,
    Usage,
)
from orchestrator.engine.kubernetes.channel import PodProcess
from orchestrator.engine.kubernetes.job_pod import JobPod
from orchestrator.engine.kubernetes.losses import ENDED, end_of_place, is_running, state_of
from orchestrator.engine.kubernetes.pod import PORTER, container_name
from orchestrator.engine.places.porter_calls import understood

_LOOK = 0.5
"""Seconds between two looks at a pod."""
_NOTICE = 15.0
"""Seconds that the porter takes at most to notice the end of a container."""
_LIMITED = """\
while read -r _ name soft hard _; do
  case $name in
    processes) ulimit -u "$soft" 2> /dev/null || ulimit -p "$soft" || exit 126 ;;
    open) ulimit -n "$hard" || exit 126 ;;
  esac
done < /proc/1/limits || exit 126
exec "$@"
"""
"""Shell script that starts a command with the limits of the shim, and so of the step."""
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


class PodContainer:
    """What all containers of a pod have in common."""

    def __init__(self, pod: JobPod, container: str, identity: str) -> None:
        """Store the arguments.

        Args:
            pod: The pod.
            container: Name of the container.
            identity: What names the container besides its Job and its pod.
        """
        self._pod, self._container = pod, container
        self.id = f"{pod.job}/{identity}/{pod.metadata['uid']}"
        self.ports: Mapping[int, int] = {}

    def wait(self, timeout: float | None) -> ExitStatus:
        """Block until the cluster records how the container ended.

        Raises:
            TimeoutError: The step still runs.
            PlaceLostError: The pod is gone, or ended without a record of the container.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self._end()
            if status is not None:
                return status
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"the container `{self._container}` still runs")
            time.sleep(_LOOK)

    def _end(self) -> ExitStatus | None:
        pod = self._pod.status()
        found = state_of(pod, self._container).get("terminated")
        if found is None:
            # protection: end-without-exit-code-is-no-success
            if pod["status"].get("phase") in ENDED:
                raise end_of_place("the cluster has no record of the container's end")
            return None
        # protection: exit-code-is-that-of-clusters-record
        code = found.get("exitCode")
        if not isinstance(code, int):
            raise EngineError(
                "the cluster does not know the exit code of a container",
                key="cluster.unreadable-answer",
            )
        return ExitStatus(exit_code=code, oom_killed=found.get("reason") == "OOMKilled")

    def enter(self, command: Sequence[str], terminal: TerminalSize | None) -> PodProcess:
        """Start another command in the container."""
        process = self._pod.enter(self._container, command, terminal)
        process.allow_silence()
        return process

    def pause(self) -> None:
        """Refuse: a cluster cannot pause containers."""
        raise UnsupportedError(
            "the engine `kubernetes` cannot pause containers", key="engine.unsupported"
        )

    def resume(self) -> None:
        """Refuse: a cluster cannot pause containers."""
        self.pause()

    def usage(self) -> Usage | None:
        """Return None: the cluster's API has no measurements."""
        return None

    def read_counters(self) -> Counters:
        """Return no numbers: a cluster tells them only when the step has ended."""
        return Counters(missing="a cluster counts nothing while the step runs")

    def lost_network(self) -> str | None:
        """Return None: a pod keeps its network."""
        return None

    def network_lines(self) -> Iterator[bytes] | None:
        """Return None: a pod has no gateway."""
        return None

    def end_network(self) -> None:
        """Do nothing: a pod has no gateway."""


class PodStep(PodContainer):
    """Implements `orchestrator.engine.interface.protocol.Container` for one run of a step."""

    def __init__(self, pod: JobPod, step: str, run: int) -> None:
        """Store the arguments.

        Args:
            pod: The pod.
            step: Name of the step.
            run: Number of the run, which has a container of its own.
        """
        super().__init__(pod, container_name(step, run), f"{step}/{run}")
        self._step, self._run = step, run
        self.before: Callable[[], None] | None = None
        """Called before the command begins: orders the steps that follow."""

    def start(self) -> None:
        """Let the command begin, unless it has begun before."""
        if self.before is not None:
            self.before()
        self._pod.porter.call("begin", self._step)

    def state(self) -> ContainerState:
        """Return when the step began and ended, by the clock of its node, as for services."""
        entries = self._pod.porter.journal(0)
        times: dict[str, datetime] = {}
        run = 1
        for entry in [entry for entry in entries if entry.step == self._step]:
            if run == self._run and entry.at is not None:
                with understood():
                    times[entry.event] = datetime.fromtimestamp(entry.at, UTC)
            run += entry.event == "ended"
        return ContainerState(started_at=times.get("started"), ended_at=times.get("ended"))

    def again(self) -> "PodStep | None":
        """Return a new handle after lost contact; None if the pod no longer exists.

        This waits until the porter answers, or until the cluster says that the pod is lost.
        """
        try:
            self._pod.porter.call("state", self._step)
        except EngineUnavailableError:
            raise
        except EngineError:
            return None
        return PodStep(self._pod, self._step, self._run)

    def logs(self, since: Mapping[Stream, int] | None = None) -> Iterator[LogChunk]:
        """Yield all output from the given offsets on, until the step ends."""
        offsets = {f"{self._step}.{stream}": (since or {}).get(stream, 0) for stream in _STREAMS}
        for name, data in self._pod.porter.read(offsets):
            yield LogChunk(stream="stderr" if name.endswith(".stderr") else "stdout", data=data)

    def kill(self, signal: Literal["SIGTERM", "SIGKILL"]) -> None:
        """Send SIGTERM to all processes of the step, or kill them."""
        if self._end() is None:
            self._pod.porter.call("stop", self._step, signal)

    def enter(self, command: Sequence[str], terminal: TerminalSize | None) -> PodProcess:
        """Start another command in the container, within the limits of the step."""
        # protection: entered-commands-are-limited
        return super().enter(("sh", "-c", _LIMITED, "sh", *command), terminal)

    def remove(self) -> None:
        """End the step, so that it can be ordered again, in another container of the pod."""
        deadline = time.monotonic() + _NOTICE
        while True:
            try:
                self._pod.porter.call("forget", self._step, str(self._run))
            except EngineError:
                if time.monotonic() >= deadline or not self._runs():
                    return
                self._kill()
                time.sleep(0.2)
            else:
                return

    def _runs(self) -> bool:
        try:
            return is_running(self._pod.status(), PORTER)
        except EngineUnavailableError:
            return True
        except EngineError:
            return False

    def _kill(self) -> None:
        try:
            self._pod.porter.call("stop", self._step, "SIGKILL")
        except EngineError:
            return
