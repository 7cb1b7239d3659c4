"""Calls to the porter of a place, by commands that run beside it.

A command that has answered waits for the next call: to start one takes longer than most answers.
"""

import hashlib
import json
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from tenacity import (
    RetryCallState,
    Retrying,
    retry,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_all,
    wait_exponential,
)

from orchestrator.base.errors import EngineError, EngineUnavailableError
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.engine.places.in_place.archive import LARGEST_ORDER, ArchiveError, Source
from orchestrator.engine.places.place import Entry

_WAIT = "20"
"""Seconds for which the porter waits for further data before it ends an answer."""
_MOST_SIGNS = 10_000
_LONGEST_LINE = 64 * 1024**2
_LONGEST_HEADER = 4 * 1024**2
_LARGEST_FRAME = 1024**2
_ATTEMPTS = 5
"""Number of connections without any progress, after which reading may fail."""
_LONGEST_PAUSE = 2.0


def pause(*, multiplier: float, most: float) -> Callable[[RetryCallState], float]:
    """Return how long a call waits before it is repeated: ever longer, and as long as it is asked.

    Args:
        multiplier: Seconds of the first pause.
        most: Seconds of the longest one, unless the engine asks for a longer one.
    """
    longer = wait_exponential(multiplier=multiplier, max=most)

    def seconds(state: RetryCallState) -> float:
        error = state.outcome and state.outcome.exception()
        asked = error.retry_after if isinstance(error, EngineUnavailableError) else 0.0
        return max(longer(state), asked)

    return seconds


repeatable = retry(
    retry=retry_if_exception_type(EngineUnavailableError),
    stop=stop_after_attempt(3),
    wait=wait_exponential(multiplier=0.1, max=1),
    reraise=True,
)
"""Decorator that tries a call up to three times while the engine is unreachable. Only for calls
that are safe to repeat, never for the start of a container.
"""


class Process(Protocol):
    """A command `talk` of the porter, which the engine runs in a container of the place."""

    def output(self) -> Iterator[LogChunk]:
        """Yield the command's output."""

    def write(self, data: bytes) -> None:
        """Send input to the command."""

    def close(self) -> None:
        """Close the connection."""


@contextmanager
def understood() -> Iterator[None]:
    """Translate the exceptions of a block that reads an answer of the place.

    Raises:
        EngineUnavailableError: The answer ended too early.
        EngineError: The answer is not as expected.
    """
    try:
        yield
    except ArchiveError as error:
        raise EngineUnavailableError(
            "the connection to the place was cut", key="place.disconnected"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise EngineError(
            "the place sent something unreadable", key="place.answer-invalid"
        ) from error


class _Connection:
    """A command that answers one call after the other."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.close = process.close
        self.source = Source(chunk.data for chunk in process.output() if chunk.stream == "stdout")

    def ask(self, words: tuple[str, ...], data: bytes = b"") -> None:
        self._process.write(json.dumps(words).encode() + b"\n" + data)

    def line(self, most: int) -> bytes:
        """Return the next line that is not empty: empty ones are signs of life.

        Raises:
            ArchiveError: There is none, or it is too long.
        """
        for _ in range(_MOST_SIGNS):
            if line := self.source.line(most):
                return line
        raise ArchiveError("the command does not end")


def _close(connections: list[_Connection]) -> None:
    while connections:
        connections.pop().close()


class PorterCalls:
    """The porter in one container, which needs not exist yet."""

    def __init__(self, start: Callable[[], Process], *, patience: float = 0.0) -> None:
        """Store the arguments.

        Args:
            start: Starts a command `talk`.
            patience: Seconds for which calls are repeated at least while the engine is unreachable.
        """
        self._start, self._patience = start, patience
        self._repeat = Retrying(
            retry=retry_if_exception_type(EngineUnavailableError),
            stop=stop_all(stop_after_attempt(3), stop_after_delay(patience)),
            wait=pause(multiplier=0.1, most=1),
            reraise=True,
        )
        self._idle: list[_Connection] = []
        """Connections that wait for a call; each is used by one thread at a time."""
        weakref.finalize(self, _close, self._idle)

    def close(self) -> None:
        """Close the connections that no call uses."""
        _close(self._idle)

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        """Yield a connection, which is kept for further calls unless the block fails."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = _Connection(self._start())
        try:
            yield connection
        except BaseException as error:
            connection.close()
            if isinstance(error, EngineUnavailableError):
                # The others were cut as well, and a further attempt needs a new one.
                self.close()
            raise
        self._idle.append(connection)

    def call(self, *words: str, data: bytes = b"") -> dict[str, Any]:
        """Run a command of the porter with some input, and return its answer.

        The porter's commands can be repeated, so a cut connection is tried again.

        Raises:
            EngineError: The porter refused, or the place has ended.
        """
        return self._repeat.copy()(self._call, words, data)

    def _call(self, words: tuple[str, ...], data: bytes) -> dict[str, Any]:
        with self._connection() as connection, understood():
            connection.ask(words, data)
            answer: dict[str, Any] = json.loads(connection.line(_LONGEST_LINE))
            refused = answer.get("error")
        if refused is not None:
            raise EngineError(f"the place refused: {one_line(str(refused))}", key="place.refusal")
        return answer

    def state(self, step: str) -> str:
        """Return how far a step is."""
        answer = self.call("state", step)
        with understood():
            return str(answer["state"])

    def run(self, step: str) -> int:
        """Return the number of a step's run."""
        answer = self.call("state", step)
        with understood():
            return int(answer["run"])

    def usage(self, parts: Collection[str], *, most_files: int, seconds: float) -> DiskUse:
        """Return a measurement of parts, as `Place.usage` does."""
        found = self.call("usage", str(most_files), str(seconds), *parts)
        with understood():
            return DiskUse(**found)

    def changed(self, part: str, *, most: int, seconds: float) -> list[str]:
        """Return paths of files that steps changed, as `Place.changed` does."""
        found = self.call("changed", part, str(most), str(seconds))
        with understood():
            return [str(path) for path in found["paths"]]

    def journal(self, after: int) -> list[Entry]:
        """Return what the porter recorded after an entry's number."""
        found = self.call("journal", str(after))
        with understood():
            return [Entry(**entry) for entry in found["entries"]]

    def send(self, *words: str, data: bytes) -> None:
        """Run a command of the porter with some data, which may be kept only in memory.

        Raises:
            EngineError: The porter refused, for example because the step was ordered before.
        """
        if len(data) > LARGEST_ORDER:
            raise EngineError(
                "a command with its variables is too large for the place",
                key="place.order-too-large",
            )
        self.call(*words, str(len(data)), hashlib.sha256(data).hexdigest(), data=data)

    def read(self, offsets: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield data of the place from offsets on, until all of it is complete.

        If the connection is cut, reading goes on at the same byte.

        Raises:
            EngineError: The data was altered, the place has ended, or the engine does not answer.
        """
        at = dict(offsets)
        failures, until = 0, time.monotonic() + self._patience
        while True:
            try:
                for name, data in self._frames(at):
                    if not name:
                        return
                    at[name] += len(data)
                    failures, until = 0, time.monotonic() + self._patience
                    yield name, data
            except EngineUnavailableError as error:
                failures += 1
                if failures >= _ATTEMPTS and time.monotonic() >= until:
                    raise
                time.sleep(max(min(0.1 * 2**failures, _LONGEST_PAUSE), error.retry_after))

    def _frames(self, offsets: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield the frames of one connection; one without a name if all data is complete."""
        places = [str(word) for pair in offsets.items() for word in pair]
        at = dict(offsets)
        with self._connection() as connection, understood():
            connection.ask(("read", _WAIT, *places))
            while "final" not in (head := json.loads(connection.line(_LONGEST_HEADER))):
                name, length = head["name"], head["length"]
                if head["at"] != at[name] or not 0 < length <= _LARGEST_FRAME:
                    raise ValueError("other data than it was asked for")
                data = connection.source.exactly(length)
                if hashlib.sha256(data).hexdigest() != head["sha256"]:
                    raise EngineError(
                        "data of the place was altered on its way", key="place.data-altered"
                    )
                at[name] += length
                yield name, data
        if head["final"]:
            yield "", b""
