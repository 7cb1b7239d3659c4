"""Dead man's switch: kill containers at their deadlines even if the orchestrator is gone.

A small separate process knows the deadlines of all workers' containers. It has no parent and a
session of its own, needs little memory, and cannot be reached by workers. It acts at the deadline,
whether the orchestrator died, hangs or was stopped.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from orchestrator.base.machine import uptime
from orchestrator.engine import installed_engines
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.sandbox.deadlines import dead_man_process

LATE = 0.5
"""Number of seconds after deadline and grace period at which the switch acts, so that the
orchestrator acts first, and a worker is dead within a second.
"""
START = 10.0
"""Number of seconds that the engine gets to start a container, if the orchestrator dies during the
start.
"""
LOG = "deadman.log"
_KEPT = frozenset({
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME", "SSH_AUTH_SOCK", "CONTAINER_HOST", "KUBECONFIG",
})  # fmt: skip
_KEPT_ENDS = ("_proxy", "_PROXY")


class Switch(Protocol):
    """The interface to the process of the dead man's switch."""

    def starting(self, worker_id: int, seconds: float | None) -> None:
        """Record that a container is about to start, and the seconds until it must be dead."""

    def running(self, worker_id: int, seconds: float | None) -> None:
        """Record the seconds until a worker's containers must be dead; None for no deadline."""

    def idle(self, worker_id: int) -> None:
        """Record that none of a worker's running containers has a deadline."""

    def close(self, *, forget: bool) -> None:
        """Disconnect from the process of the switch.

        Args:
            forget: Whether all containers are gone; otherwise the switch continues without this
                process.
        """


class NoSwitch:
    """A switch that does nothing, for engines to which no other process can connect."""

    def starting(self, worker_id: int, seconds: float | None) -> None:
        """Do nothing: only this process can stop the containers, so no other watches them."""

    def running(self, worker_id: int, seconds: float | None) -> None:
        """Do nothing: only this process can stop the containers, so no other watches them."""

    def idle(self, worker_id: int) -> None:
        """Do nothing: only this process can stop the containers, so no other watches them."""

    def close(self, *, forget: bool) -> None:
        """Do nothing, because no separate process was started."""


NO_SWITCH = NoSwitch()


class DeadMan:
    """The dead man's switch of one run; its process starts with the first container."""

    def __init__(self, engine: str, run: Path, address: str = "") -> None:
        """Store the arguments; no process is started yet.

        Args:
            engine: Name of the engine, for the separate process to connect to.
            run: The run's directory.
            address: Where that process reaches the engine. Default: as this process does.
        """
        self._engine = (engine, run.name, *filter(None, [address]))
        self._run = run
        self._lines: dict[int, str] = {}
        self._pipe: int | None = None
        self._launched: list[subprocess.Popen[bytes]] = []
        """Processes that end as soon as the switch that they start has detached itself."""
        self._lock = threading.Lock()

    def starting(self, worker_id: int, seconds: float | None) -> None:
        """Record that a container is about to start, and the seconds until it must be dead."""
        late = None if seconds is None else seconds + START
        self._tell(worker_id, f"starting {worker_id} {_moment(late)}\n")

    def running(self, worker_id: int, seconds: float | None) -> None:
        """Record the seconds until a worker's containers must be dead; None for no deadline."""
        self._tell(worker_id, f"running {worker_id} {_moment(seconds)}\n")
        self._await_launch()

    def idle(self, worker_id: int) -> None:
        """Record that none of a worker's running containers has a deadline."""
        self._tell(worker_id, f"idle {worker_id}\n")
        self._await_launch()

    def close(self, *, forget: bool) -> None:
        """Disconnect from the process, which ends when it has nothing left to watch."""
        self._await_launch()
        with self._lock:
            if self._pipe is None:
                return
            if forget:
                with suppress(OSError):
                    os.write(self._pipe, b"forget\n")
            os.close(self._pipe)
            self._pipe = None

    def _tell(self, worker_id: int, line: str) -> None:
        with self._lock:
            self._lines[worker_id] = line
            with suppress(OSError):
                if self._pipe is not None:
                    os.write(self._pipe, line.encode())
                    return
            # The process is not started yet or was killed: a new process receives all lines again.
            # protection: killed-switch-is-replaced
            self._start()

    def _start(self) -> None:
        """Start the process and send all commands so far; ignore a failure to start."""
        with suppress(OSError):
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None
            read, self._pipe = os.pipe()
            try:
                # The commands are read when the switch has started. Until then, the engine can
                # prepare the container.
                self._launched.append(_launch(read, self._run, self._engine))
            finally:
                os.close(read)
            os.set_blocking(self._pipe, False)
            os.write(self._pipe, "".join(self._lines.values()).encode())

    def _await_launch(self) -> None:
        with self._lock:
            while self._launched:
                self._launched.pop().wait()


def make_switch(engine: ContainerEngine, run: Path, address: str = "") -> Switch:
    """Create the dead man's switch of a run; it does nothing if no process can reach the engine.

    Args:
        engine: The engine.
        run: The run's directory.
        address: Where another process reaches the engine. Default: as this process does.
    """
    if engine.name not in installed_engines():
        return NO_SWITCH
    return DeadMan(engine.name, run, address)


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else f"{uptime() + seconds:.3f}"


def _launch(source: int, run: Path, engine: Sequence[str]) -> "subprocess.Popen[bytes]":
    kill = (sys.executable, "-P", "-m", "orchestrator.sandbox.deadlines.overdue", *engine)
    program = (sys.executable, "-I", "-S", dead_man_process.__file__)
    # protection: switch-has-its-own-session
    # protection: switch-gets-no-secrets
    return subprocess.Popen(
        [*program, str(run / "lease"), str(run / LOG), *kill],
        stdin=source,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment(os.environ),
        start_new_session=True,
    )


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the engine may need, without secrets and CI systems' variables."""
    package = str(Path(dead_man_process.__file__).parents[3])
    paths = [package, *filter(None, [environ.get("PYTHONPATH")])]
    found = {
        name: value
        for name, value in environ.items()
        if name in _KEPT or name.startswith("DOCKER_") or name.endswith(_KEPT_ENDS)
    }
    return {**found, "PYTHONPATH": os.pathsep.join(paths)}
