"""A service container that runs beside a worker: its start, log and end."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import last_output_line
from orchestrator.engine.interface.protocol import Container, ContainerEngine, InnerProcess

_TAIL = 4096
_GONE = 5.0
"""Maximum number of seconds to wait for the last output of a removed container."""
_SHOWN = 300
_PAUSE = 0.2
"""Seconds between two checks whether the service is ready."""


class Sidecar:
    """A service container that runs beside a worker."""

    def __init__(
        self, name: str, container: Container, log: Path, *, limit: int, redactor: Redactor
    ) -> None:
        """Wrap a container that was created; `start` starts it.

        Args:
            name: The service's name.
            container: The created container, whose output is not read yet.
            log: File that receives the output.
            limit: Largest size of the log, in bytes.
            redactor: Removes secrets from the output.
        """
        self.name = name
        self.container = container
        self._log = log
        self._room = limit
        self._streams = {name: redactor.stream() for name in ("stdout", "stderr")}
        self._tail = b""
        self._file: IO[bytes] | None = None
        self._follower = threading.Thread(target=self._follow, name=f"service-{name}", daemon=True)

    def start(self) -> None:
        """Start the container, unless it was started before, and read its output."""
        self.container.start()
        self._follower.start()

    def end_reason(self) -> str | None:
        """Return why the container ended; None while the container is running.

        Raises:
            EngineError: The engine does not answer.
        """
        if self.container.state().ended_at is None:
            return None
        status = self.container.wait(_GONE)
        self._has_said_all()
        why = "needed more memory than its limit" if status.oom_killed else "ended"
        return f"{why} (exit code {status.exit_code}){self.last_words()}"

    def last_words(self) -> str:
        """Return `: ` and the last line of output, to append to a message; empty without output."""
        last = last_output_line(self._tail.decode("utf-8", "replace"), limit=_SHOWN)
        return f": {last}" if last else ""

    def remove(self) -> None:
        """Remove the container. If this fails, a later cleanup finds it by its labels."""
        with suppress(OrchestratorError):
            self.container.remove()
        self._has_said_all()

    def _has_said_all(self) -> None:
        if self._follower.ident is not None:
            self._follower.join(_GONE)

    def _follow(self) -> None:
        with ExitStack() as stack:
            # A service works without a log, but its output must be read, or the container would
            # block.
            with suppress(OSError):
                self._file = stack.enter_context(self._log.open("wb", buffering=0))
            with suppress(OrchestratorError):
                for chunk in self.container.logs():
                    self._keep(self._streams[chunk.stream].feed(chunk.data))
            for stream in self._streams.values():
                self._keep(stream.flush())

    def _keep(self, clean: bytes) -> None:
        self._tail = (self._tail + clean)[-_TAIL:]
        if self._file is not None and self._room > 0:
            with suppress(OSError):
                self._file.write(clean[: self._room])
            self._room -= len(clean)


class Check:
    """Runs a command in a container again and again until it succeeds."""

    def __init__(
        self,
        engine: ContainerEngine,
        container: str,
        command: tuple[str, ...],
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start the thread that repeats the command, with more variables than the container's."""
        self._ready = threading.Event()
        self._over = threading.Event()
        # A command that hangs blocks this thread until the container is gone.
        asked = (engine, container, command, env)
        threading.Thread(target=self._ask, args=asked, name="check", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the command to succeed; return whether it did."""
        return self._ready.wait(seconds)

    def stop(self) -> None:
        """Stop repeating the command."""
        self._over.set()

    def _ask(
        self,
        engine: ContainerEngine,
        container: str,
        command: tuple[str, ...],
        env: Mapping[str, str] | None,
    ) -> None:
        while not self._over.is_set():
            with suppress(OrchestratorError):
                if _ends_well(engine.enter(container, command, env=env)):
                    self._ready.set()
                    return
            self._over.wait(_PAUSE)


def _ends_well(process: InnerProcess) -> bool:
    try:
        for _ in process.output():
            pass
        return process.wait() == 0
    finally:
        process.close()
