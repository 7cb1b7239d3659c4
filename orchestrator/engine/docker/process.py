"""A command that runs inside a running container, as with `docker exec`."""

import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import docker
import docker.errors

from orchestrator.base.errors import EngineError, NotRunningError
from orchestrator.base.events import Stream
from orchestrator.engine.docker.duplex import Duplex
from orchestrator.engine.docker.errors import is_not_running, translated
from orchestrator.engine.interface.protocol import LogChunk, TerminalSize

_CHUNK = 64 * 1024
_HEADER = struct.Struct(">BxxxL")
_STREAMS: Mapping[int, Stream] = {1: "stdout", 2: "stderr"}
_NOTICE = 5.0
"""Maximum number of seconds that the daemon takes to notice that a command has ended, after the end
of its output.
"""
_TICK = 0.05
_LARGEST_ANSWER = 16 * 1024**2


def read_frames(reader: Any) -> Iterator[tuple[int, bytes]]:  # noqa: ANN401  # of http.client
    """Yield the output in a stream of the daemon, each piece with the number of its stream."""
    while len(header := reader.read(_HEADER.size)) == _HEADER.size:
        number, left = _HEADER.unpack(header)
        while left and (data := reader.read1(min(left, _CHUNK))):
            left -= len(data)
            yield number, data


class DockerProcess:
    """A command in a container as it is: see `interface.inner_command.PlainProcess`."""

    _patience: float | None = None
    """Maximum number of seconds without output; None for commands of users."""

    def __init__(
        self,
        client: docker.APIClient,
        container_id: str,
        command: tuple[str, ...],
        *,
        env: Mapping[str, str],
        stdin: bool = False,
        terminal: TerminalSize | None = None,
        user: str | None = None,
    ) -> None:
        """Start the command in the container's working directory."""
        self._client = client
        self._terminal = terminal is not None
        with translated("start a command in the container"):
            try:
                self._id = client.exec_create(
                    container_id, list(command),
                    stdin=stdin or self._terminal, tty=self._terminal,
                    environment=dict(env), user=user or "",
                )["Id"]  # fmt: skip
            except docker.errors.APIError as error:
                if is_not_running(error):
                    raise NotRunningError(
                        "the container is not running", key="container.not-running"
                    ) from error
                raise
            connection: Any = client.exec_start(self._id, tty=self._terminal, socket=True)
        # protection: commands-of-ours-do-not-wait-forever
        self._connection = Duplex(connection, self._patience)
        self._chunks: deque[LogChunk] = deque()
        self._begun = b""
        self._left, self._stream = 0, _STREAMS[1]
        if terminal is not None:
            self.resize(terminal)

    def output(self) -> Iterator[LogChunk]:
        """Yield the command's output until the command ends."""
        while (chunk := self.receive()) is not None:
            yield chunk

    def receive(self, timeout: float | None = None) -> LogChunk | None:
        """Return output; None at its end, TimeoutError if there is none for so many seconds."""
        while not self._chunks:
            with translated("read the command's output"):
                data = self._connection.receive(timeout)
                if data == b"":
                    return None
                if data:
                    self._split(data)
            if data is None:
                raise TimeoutError("the command prints nothing")
        return self._chunks.popleft()

    def _split(self, data: bytes) -> None:
        """Note the pieces of output in bytes of the stream, each of which has a header."""
        if self._terminal:
            self._chunks.append(LogChunk(stream="stdout", data=data))
            return
        data, at = self._begun + data, 0
        while at < len(data):
            if not self._left:
                if len(data) - at < _HEADER.size:
                    break
                number, self._left = _HEADER.unpack_from(data, at)
                self._stream = _STREAMS.get(number, "stderr")
                at += _HEADER.size
            elif piece := data[at : at + self._left]:
                at += len(piece)
                self._left -= len(piece)
                self._chunks.append(LogChunk(stream=self._stream, data=piece))
        self._begun = data[at:]

    def write(self, data: bytes) -> None:
        """Send input to the command."""
        with translated("write to the command"):
            self._connection.send(data)

    def close_stdin(self) -> None:
        """End the command's input."""
        # A command that has ended needs no end of its input.
        with suppress(OSError):
            self._connection.end()

    def resize(self, size: TerminalSize) -> None:
        """Change the size of the command's terminal, retrying while it is being set up."""
        deadline = time.monotonic() + 1
        while True:
            try:
                self._client.exec_resize(self._id, height=size.rows, width=size.columns)
            except docker.errors.DockerException:
                # A wrong window size is not worth an error, and a command that has ended needs no
                # size.
                if time.monotonic() >= deadline:
                    return
                time.sleep(_TICK)
            else:
                return

    def wait(self) -> int:
        """Return the command's exit code."""
        deadline = time.monotonic() + _NOTICE
        while True:
            with translated("query the command's exit code"):
                try:
                    state = self._client.exec_inspect(self._id)
                except docker.errors.NotFound as error:
                    raise EngineError(
                        "the container ended, and the command with it", key="container.ended"
                    ) from error
            if not state["Running"] and state["ExitCode"] is not None:
                return int(state["ExitCode"])
            if time.monotonic() >= deadline:
                raise EngineError(
                    "the container engine did not report the exit code of a command in a container",
                    key="command.no-exit-code",
                )
            time.sleep(_TICK)

    def close(self) -> None:
        """Close the command's input and output; a thread that reads or writes notices it."""
        self._connection.close()


class _ShortCommand(DockerProcess):
    _patience = 60.0


def run_in(client: docker.APIClient, container_id: str, command: tuple[str, ...]) -> bytes:
    """Run a short command in a container and return what it prints; nothing if the container ended.

    Raises:
        EngineError: The engine does not answer, refuses the command, or sends too much.
    """
    try:
        process = _ShortCommand(client, container_id, command, env={})
    except NotRunningError:
        return b""
    said = b""
    try:
        for chunk in process.output():
            said += chunk.data if chunk.stream == "stdout" else b""
            if len(said) > _LARGEST_ANSWER:
                raise EngineError(
                    "a command in a container printed too much", key="command.too-long"
                )
    finally:
        process.close()
    return said
