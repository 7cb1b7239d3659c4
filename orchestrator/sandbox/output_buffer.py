"""The output of a command in memory: bounded, and readable from any offset."""

import threading
import time

from orchestrator.base.events import Stream
from orchestrator.config.settings.run import Triggers
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.sandbox.supervision.watchdog import OutputSigns


class OutputBuffer:
    """Implements `sandbox.supervision.output.Output` for a command whose output is kept here."""

    cost: float | None = None
    tokens: int | None = None
    steps: int | None = None

    def __init__(self, limit: int) -> None:
        """Start empty; of both streams together, `limit` bytes are kept."""
        self._limit = limit
        self._changed = threading.Condition()
        self.restart()

    def restart(self) -> None:
        """Forget all output so far, because it will be received again from the first byte."""
        with self._changed:
            self.size = 0
            self.heard_at = time.monotonic()
            self.signs = OutputSigns(Triggers())
            self._kept: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
            self._ended = False

    def write(self, chunk: LogChunk) -> None:
        """Keep a chunk of output, or what of it fits."""
        with self._changed:
            # protection: output-in-memory-limited
            room = max(self._limit - self.size, 0)
            self._kept[chunk.stream] += chunk.data[:room]
            self.size += len(chunk.data)
            self.heard_at = time.monotonic()
            self._changed.notify_all()

    def tell(self, *, now: bool = False) -> None:
        """Do nothing: nobody is told of single lines."""

    def end(self) -> None:
        """Note that there will be no more output."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def truncated(self) -> bool:
        """Return whether output was lost because of the limit."""
        return self.size > self._limit

    def read(self, stream: Stream, offset: int = 0) -> bytes:
        """Return what is kept of a stream, from an offset in bytes on."""
        with self._changed:
            return self._from(stream, offset)

    def wait_for(self, stream: Stream, offset: int, timeout: float | None) -> bytes:
        """Return what is kept from an offset on; wait for it until the end of the output."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._kept[stream]) > offset, timeout)
            return self._from(stream, offset)

    def _from(self, stream: Stream, offset: int) -> bytes:
        with memoryview(self._kept[stream]) as kept:
            return bytes(kept[offset:])
