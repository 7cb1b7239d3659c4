"""Read a container's output line by line, or from the daemon's log when a run is resumed."""

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from queue import Queue

import docker

from orchestrator.base.events import Stream
from orchestrator.engine.docker.errors import translated
from orchestrator.engine.interface.protocol import LogChunk

_AHEAD = 16
"""Maximum number of output chunks that are read ahead."""
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
_LONGEST = 64 * 1024
"""Maximum number of bytes of an unfinished line that are kept."""


def replay(client: docker.APIClient, container_id: str) -> Iterator[LogChunk]:
    """Yield the output that the daemon stored, and new output until the container ends.

    The SDK mixes stdout and stderr of a container's log, so each stream is requested separately.

    Raises:
        EngineError: The output cannot be read.
    """
    chunks: Queue[LogChunk | Exception | None] = Queue(_AHEAD)

    def follow(stream: Stream) -> None:
        try:
            with translated("read the container's output"):
                wanted = client.logs(
                    container_id,
                    stdout=stream == "stdout",
                    stderr=stream == "stderr",
                    stream=True,
                    follow=True,
                )
                for data in wanted:
                    chunks.put(LogChunk(stream=stream, data=data))
            chunks.put(None)
        except Exception as error:  # noqa: BLE001  # raised again by the reader
            chunks.put(error)

    for stream in _STREAMS:
        threading.Thread(
            target=follow, args=(stream,), name=f"replay-{stream}", daemon=True
        ).start()
    open_streams = len(_STREAMS)
    while open_streams:
        found = chunks.get()
        if isinstance(found, Exception):
            raise found
        if found is None:
            open_streams -= 1
        else:
            yield found


def replay_lines(client: docker.APIClient, container_id: str) -> Iterator[bytes]:
    """Yield a container's output as lines with timestamps: stored lines, then new lines.

    Raises:
        EngineError: The output cannot be read.
    """
    with translated("read the container's output"):
        stored = client.logs(container_id, stream=True, follow=True, timestamps=True)
        # The daemon sends each line as a whole.
        for data in stored:
            yield data.removesuffix(b"\n")


def timed_lines(chunks: Iterable[LogChunk]) -> Iterator[bytes]:
    """Yield the lines of a container's output, each with the current time in front."""
    started = dict.fromkeys(_STREAMS, b"")
    for chunk in chunks:
        *lines, rest = (started[chunk.stream] + chunk.data).split(b"\n")
        started[chunk.stream] = rest[:_LONGEST]
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z ".encode()
        yield from (now + line for line in lines)
