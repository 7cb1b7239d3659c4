"""A command in a sandbox that stays."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from orchestrator.base.errors import EngineError, OrchestratorError
from orchestrator.base.events import Stream
from orchestrator.engine.interface.protocol import InnerProcess
from orchestrator.sandbox.models import EndReason, Finished
from orchestrator.sandbox.output_buffer import OutputBuffer

_TICK = 0.2


class Process:
    """A command that was started in a sandbox. Its output is kept here, up to a limit."""

    def __init__(
        self,
        inner: InnerProcess,
        *,
        output_limit: int,
        idle_timeout: float,
        fate: Callable[[int | None, EndReason | None], Finished],
    ) -> None:
        """Begin to read the command's output.

        Args:
            inner: The command.
            output_limit: Bytes of output; more of it ends the command.
            idle_timeout: Seconds without output that end the command; 0: no limit.
            fate: Returns the result without output for an exit code, None if the container ended
                first, and the reason for which the command was stopped, None if it was not.
        """
        self._inner = inner
        self._output = OutputBuffer(output_limit)
        self._idle_timeout = idle_timeout
        self._fate = fate
        self._started = time.monotonic()
        self._stopped: tuple[EndReason, str] | None = None
        self._done = threading.Event()
        self._finished: Finished | None = None
        threading.Thread(target=self._follow, name="command", daemon=True).start()
        if idle_timeout:
            threading.Thread(target=self._watch_silence, name="silence", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Send input to the command; blocks while the command does not read it.

        Raises:
            EngineError: The command has ended.
        """
        self._inner.write(data)

    def close_stdin(self) -> None:
        """End the command's input, so that it reads to an end."""
        self._inner.close_stdin()

    def signal(self, name: str) -> None:
        """Send a signal such as `SIGINT` to the command and all processes of its group."""
        self._inner.signal(name)

    def output(
        self, stream: Stream = "stdout", offset: int = 0, *, timeout: float | None = 0.0
    ) -> bytes:
        """Return the output from an offset on, without removing it.

        Args:
            stream: The stream.
            offset: Bytes to skip. A reader that comes back goes on where it was.
            timeout: Seconds to wait for output; None: until there is some, or the command ended.
        """
        return self._output.wait_for(stream, offset, timeout)

    def finish(self, stdin: bytes | None = None) -> Finished:
        """Send the whole input, end it, and return how the command ended."""
        if stdin is not None:
            # A command need not read its input.
            with suppress(OrchestratorError):
                self.write(stdin)
            with suppress(OrchestratorError):
                self.close_stdin()
        return self.wait()

    def kill(self) -> None:
        """End the command and its group: SIGTERM, and SIGKILL after the grace period."""
        self._stop(EndReason.KILLED, "stopped by the caller")

    def wait(self, timeout: float | None = None) -> Finished:
        """Return how the command ended.

        Raises:
            TimeoutError: It still runs after so many seconds; it is not stopped.
        """
        if not self._done.wait(timeout) or self._finished is None:
            raise TimeoutError(f"the command still runs after {timeout} s")
        return self._finished

    def _stop(self, reason: EndReason, message: str) -> None:
        self._stopped = self._stopped or (reason, message)
        self._inner.close()

    def _follow(self) -> None:
        code, problem = None, None
        try:
            for chunk in self._inner.output():
                self._output.write(chunk)
                if self._output.truncated and self._stopped is None:
                    # In a thread, because the command must be read while it ends.
                    stop = (EndReason.OUTPUT, "stopped: more output than the limit")
                    threading.Thread(target=self._stop, args=stop, daemon=True).start()
            code = self._inner.wait()
        except EngineError as error:
            problem = error.message
        wall = time.monotonic() - self._started
        if self._stopped is None and self._inner.timed_out:
            self._stopped = (EndReason.TIMEOUT, "stopped at its timeout")
        reason, message = self._stopped or (None, None)
        with suppress(EngineError):
            self._inner.close()
        result = self._fate(code, reason)
        more = {
            "message": message or result.message or problem,
            "stdout": self._output.read("stdout"),
            "stderr": self._output.read("stderr"),
            "truncated": self._output.truncated,
            "wall": wall,
        }
        self._finished = result.model_copy(update=more)
        self._output.end()
        self._done.set()

    def _watch_silence(self) -> None:
        while not self._done.wait(_TICK):
            if time.monotonic() - self._output.heard_at > self._idle_timeout:
                self._stop(EndReason.IDLE, f"stopped: no output for {self._idle_timeout:g} s")
                return
