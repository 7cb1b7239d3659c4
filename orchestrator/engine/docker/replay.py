"""Read a container's output from the daemon's log, to continue a run of another process."""

import threading
from collections.abc import Iterator
from queue import Queue

import docker

from orchestrator.engine.docker.errors import translated
from orchestrator.engine.protocol import LogChunk
from orchestrator.events import Stream

_AHEAD = 16
"""Maximum number of output chunks that are read ahead."""
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


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
