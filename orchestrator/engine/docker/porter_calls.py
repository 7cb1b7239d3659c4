"""Calls to the porter of a place with volumes, by commands in the porter's container.

A command that has answered waits for the next call: to start one takes longer than most answers.
"""

import hashlib
import json
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import docker
import docker.errors

from orchestrator.engine.docker.container import repeatable
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.docker.image_files import read_file
from orchestrator.engine.docker.process import DockerProcess
from orchestrator.engine.in_place.archive import ArchiveError, Source
from orchestrator.engine.in_place.commands import LARGEST_ORDER
from orchestrator.errors import EngineError, EngineUnavailableError, NotRunningError
from orchestrator.text.sanitize import one_line

STATE = "/state"
"""Directory of the porter's own files, on a volume that no step sees."""
_COMMAND = ("python3", "-I", "-S", f"{STATE}/porter.py", STATE, "talk")
_WAIT = "20"
"""Seconds for which the porter waits for further data before it ends an answer."""
_SILENCE = 60.0
"""Maximum number of seconds without a sign of life of a command; see `commands.talk`."""
_MOST_SIGNS = 10_000
_LONGEST_LINE = 64 * 1024**2
_LARGEST_FRAME = 1024**2
_LARGEST_FILE = 4 * 1024**2
_ATTEMPTS = 5
"""Number of connections without any progress, after which reading fails."""


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
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(
            "the place sent something unreadable", key="place.answer-invalid"
        ) from error


class _Connection(DockerProcess):
    """A command in the porter's container that answers one call after the other."""

    _takes_input = True
    _patience = _SILENCE

    def __init__(self, client: docker.APIClient, container: str) -> None:
        try:
            super().__init__(client, container, _COMMAND, terminal=None, env={})
        except NotRunningError as error:
            raise EngineError("the place has ended", key="place.ended") from error
        self.source = Source(chunk.data for chunk in self.output() if chunk.stream == "stdout")

    def ask(self, words: tuple[str, ...], data: bytes = b"") -> None:
        self.write(json.dumps(words).encode() + b"\n" + data)

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


class Porter:
    """The porter in one container, which needs not exist yet."""

    def __init__(self, client: docker.APIClient, name: str) -> None:
        self._client = client
        self.name = name
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
            connection = _Connection(self._client, self.name)
        try:
            yield connection
        except BaseException as error:
            connection.close()
            if isinstance(error, EngineUnavailableError):
                # The others were cut as well, and a further attempt needs a new one.
                self.close()
            raise
        self._idle.append(connection)

    def inspect(self, container: str) -> dict[str, Any] | None:
        """Return what the engine knows of a container; None if it does not exist."""
        with translated("inspect the container"):
            try:
                found: dict[str, Any] = self._client.inspect_container(container)
            except docker.errors.NotFound:
                return None
        return found

    def runs(self) -> bool:
        """Return whether the porter runs."""
        found = self.inspect(self.name)
        return found is not None and bool(found["State"]["Running"])

    @repeatable
    def call(self, *words: str, data: bytes = b"") -> dict[str, Any]:
        """Run a command of the porter with some input, and return its answer.

        The porter's commands can be repeated, so a cut connection is tried again.

        Raises:
            EngineError: The porter refused, or the place has ended.
        """
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
        failures = 0
        while True:
            try:
                for name, data in self._frames(at):
                    if not name:
                        return
                    at[name] += len(data)
                    failures = 0
                    yield name, data
            except EngineUnavailableError:
                failures += 1
                if failures == _ATTEMPTS:
                    raise
                time.sleep(0.1 * 2**failures)

    def _frames(self, offsets: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield the frames of one connection; one without a name if all data is complete."""
        places = [str(word) for pair in offsets.items() for word in pair]
        at = dict(offsets)
        with self._connection() as connection, understood():
            connection.ask(("read", _WAIT, *places))
            while "final" not in (head := json.loads(connection.line(_LARGEST_FILE))):
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

    def read_record(self, name: str) -> dict[str, Any]:
        """Return a JSON object among the porter's files, also if the place has ended.

        The object is empty if it was never written.
        """
        data = read_file(self._client, self.name, f"{STATE}/{name}", most=_LARGEST_FILE)
        with understood():
            record: dict[str, Any] = dict(json.loads(data or b"{}"))
        return record
