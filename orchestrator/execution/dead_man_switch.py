"""The dead man's switch: containers die at their deadline although our process is gone.

A small process is told when the containers of each worker must be dead. It is nobody's child, in a
session of its own, far smaller than whatever the kernel kills for memory first, and out of every
worker's reach. It acts when the moment comes, whether our process died, hangs, or was stopped.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from orchestrator.engine import installed_engines
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.execution import dead_man_process as deadman_process

LATE = 2.0
"""Seconds after a deadline and its grace at which the switch acts: our own clock comes first."""
START = 10.0
"""Seconds for the engine to start a container, when nobody is left to see how long it took."""
LOG = "deadman.log"
_KEPT = frozenset({
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "XDG_RUNTIME_DIR",
    "SSH_AUTH_SOCK", "CONTAINER_HOST", "KUBECONFIG",
})  # fmt: skip
_KEPT_ENDS = ("_proxy", "_PROXY")


class Switch(Protocol):
    """What is told of the workers' containers."""

    def starting(self, worker_id: int, seconds: float | None) -> None:
        """Note that a container is about to be started, and when it must be dead without us."""

    def running(self, worker_id: int, seconds: float | None) -> None:
        """Note that a worker's containers must be dead in so many seconds; None for no deadline."""

    def idle(self, worker_id: int) -> None:
        """Note that none of a worker's containers that has a deadline runs now."""

    def close(self, *, forget: bool) -> None:
        """End.

        Args:
            forget: All containers are gone. Else the switch goes on without us.
        """


class NoSwitch:
    """Watches nothing: for engines that no other process can connect to."""

    def starting(self, worker_id: int, seconds: float | None) -> None:
        """Do nothing."""

    def running(self, worker_id: int, seconds: float | None) -> None:
        """Do nothing."""

    def idle(self, worker_id: int) -> None:
        """Do nothing."""

    def close(self, *, forget: bool) -> None:
        """Do nothing."""


NO_SWITCH = NoSwitch()


class DeadMan:
    """The switch of one run; its process is started when the first container is about to be."""

    def __init__(self, engine: str, run: Path) -> None:
        """Start nothing yet.

        Args:
            engine: The engine's name, for another process to connect to it.
            run: The run's directory, whose lease we have signed.
        """
        self._engine = engine
        self._run = run
        self._lines: dict[int, str] = {}
        self._pipe: int | None = None
        self._lock = threading.Lock()

    def starting(self, worker_id: int, seconds: float | None) -> None:
        """Note that a container is about to be started, and when it must be dead without us."""
        late = None if seconds is None else seconds + START
        self._tell(worker_id, f"starting {worker_id} {_moment(late)}\n")

    def running(self, worker_id: int, seconds: float | None) -> None:
        """Note that a worker's containers must be dead in so many seconds; None for no deadline."""
        self._tell(worker_id, f"running {worker_id} {_moment(seconds)}\n")

    def idle(self, worker_id: int) -> None:
        """Note that none of a worker's containers that has a deadline runs now."""
        self._tell(worker_id, f"idle {worker_id}\n")

    def close(self, *, forget: bool) -> None:
        """End; the process ends, too, when it has nothing left to watch."""
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
            # Not started yet, or somebody killed it: a new one is told everything.
            self._start()

    def _start(self) -> None:
        """Start the process and tell it all; without it a run goes on, watched by us alone."""
        with suppress(OSError):
            if self._pipe is not None:
                os.close(self._pipe)
                self._pipe = None
            read, self._pipe = os.pipe()
            try:
                _launch(read, self._run, self._engine)
            finally:
                os.close(read)
            os.set_blocking(self._pipe, False)
            os.write(self._pipe, "".join(self._lines.values()).encode())


def make_switch(engine: ContainerEngine, run: Path) -> Switch:
    """Make the switch of a run, or one that watches nothing where it could not reach the engine."""
    if engine.name not in installed_engines():
        return NO_SWITCH
    return DeadMan(engine.name, run)


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else f"{deadman_process.uptime() + seconds:.3f}"


def _launch(source: int, run: Path, engine: str) -> None:
    kill = (sys.executable, "-P", "-m", "orchestrator.execution.overdue", engine, run.name)
    program = (sys.executable, "-I", "-S", deadman_process.__file__)
    subprocess.run(
        [*program, str(run / "lease"), str(run / LOG), *kill],
        stdin=source,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(os.environ),
        start_new_session=True,
        check=False,
    )


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the engine may need, without secrets and marks of CI systems."""
    package = str(Path(deadman_process.__file__).parents[2])
    paths = [package, *filter(None, [environ.get("PYTHONPATH")])]
    found = {
        name: value
        for name, value in environ.items()
        if name in _KEPT or name.startswith("DOCKER_") or name.endswith(_KEPT_ENDS)
    }
    return {**found, "PYTHONPATH": os.pathsep.join(paths)}
