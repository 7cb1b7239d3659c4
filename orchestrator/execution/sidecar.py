"""A container beside a worker's: its log, whether it is ready, how it ended."""

import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from orchestrator.engine.protocol import Container, ContainerEngine, InnerProcess
from orchestrator.errors import OrchestratorError
from orchestrator.text.redact import Redactor
from orchestrator.text.sanitize import one_line

_TAIL = 4096
_GONE = 5.0
"""Seconds for the last output of a container that was removed."""
_SHOWN = 300
_PAUSE = 0.2
"""Seconds between two checks."""


class Sidecar:
    """One that was created, by us or by another process."""

    def __init__(
        self, name: str, container: Container, log: Path, *, limit: int, redactor: Redactor
    ) -> None:
        """Do nothing yet.

        Args:
            name: What people call it.
            container: It, whose output nobody reads yet.
            log: Where its output goes.
            limit: Bytes of that which are kept.
            redactor: Takes secrets out of it.
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
        """Start it, unless that was done, and read what it says."""
        self.container.start()
        self._follower.start()

    def ended(self) -> str | None:
        """Return how it ended, or None while it runs.

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
        """Return the last line that it said, behind a colon, if it said anything."""
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "")
        return f": {one_line(last, limit=_SHOWN)}" if last else ""

    def remove(self) -> None:
        """Remove it; what cannot be removed is found by its labels."""
        with suppress(OrchestratorError):
            self.container.remove()
        self._has_said_all()

    def _has_said_all(self) -> None:
        if self._follower.ident is not None:
            self._follower.join(_GONE)

    def _follow(self) -> None:
        with ExitStack() as stack:
            # Without a log it serves as well; what nobody reads would hold it up.
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
    """Runs a command in a container again and again, until it ends well."""

    def __init__(self, engine: ContainerEngine, container: str, command: tuple[str, ...]) -> None:
        """Begin."""
        self._ready = threading.Event()
        self._over = threading.Event()
        # One that hangs takes its thread with it until its container is gone.
        asked = (engine, container, command)
        threading.Thread(target=self._ask, args=asked, name="check", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait for a good end, but no longer than that."""
        return self._ready.wait(seconds)

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self, engine: ContainerEngine, container: str, command: tuple[str, ...]) -> None:
        while not self._over.is_set():
            with suppress(OrchestratorError):
                if _ends_well(engine.enter(container, command)):
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
