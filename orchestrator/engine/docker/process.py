"""A command that runs inside a running container, as with `docker exec`."""

import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

import docker
import docker.errors

from orchestrator.base.errors import EngineError, NotRunningError
from orchestrator.base.events import Stream
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
    """Implements `orchestrator.engine.interface.protocol.InnerProcess`."""

    _takes_input = False
    """Whether the command has input although it has no terminal."""
    _patience: float | None = None
    """Maximum number of seconds without output; None for commands of users."""

    def __init__(
        self,
        client: docker.APIClient,
        container_id: str,
        command: tuple[str, ...],
        *,
        terminal: TerminalSize | None,
        env: Mapping[str, str],
    ) -> None:
        """Start the command as the container's user, in the container's working directory."""
        self._client = client
        self._terminal = terminal is not None
        with translated("start a command in the container"):
            try:
                self._id = client.exec_create(
                    container_id, list(command),
                    stdin=self._terminal or self._takes_input, tty=self._terminal,
                    environment=dict(env),
                )["Id"]  # fmt: skip
            except docker.errors.APIError as error:
                if is_not_running(error):
                    raise NotRunningError(
                        "the container is not running", key="container.not-running"
                    ) from error
                raise
            connection: Any = client.exec_start(self._id, tty=self._terminal, socket=True)
        # The socket itself, without docker-py's wrappers: it is writable.
        self._socket = getattr(connection, "_sock", connection)
        # protection: commands-of-ours-do-not-wait-forever
        self._socket.settimeout(self._patience)
        # The first bytes of output may already be in the buffer of the HTTP response.
        self._response = connection._response
        self._reader = self._response.raw._fp.fp
        if terminal is not None:
            self.resize(terminal)

    def output(self) -> Iterator[LogChunk]:
        """Yield the command's output until the command ends."""
        with translated("read the command's output"):
            if self._terminal:
                while data := self._reader.read1(_CHUNK):
                    yield LogChunk(stream="stdout", data=data)
                return
            for stream, data in read_frames(self._reader):
                yield LogChunk(stream=_STREAMS[stream], data=data)

    def write(self, data: bytes) -> None:
        """Send input to the command."""
        with translated("write to the command"):
            self._socket.sendall(data)

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
        """Close the command's input and output."""
        self._response.close()


class _ShortCommand(DockerProcess):
    _patience = 60.0


def run_in(client: docker.APIClient, container_id: str, command: tuple[str, ...]) -> bytes:
    """Run a short command in a container and return what it prints; nothing if the container ended.

    Raises:
        EngineError: The engine does not answer, refuses the command, or sends too much.
    """
    try:
        process = _ShortCommand(client, container_id, command, terminal=None, env={})
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
