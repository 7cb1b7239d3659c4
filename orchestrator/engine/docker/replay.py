"""A container's output as the daemon kept it, for a process that did not start it."""

import threading
from collections.abc import Iterator
from queue import Queue

import docker

from orchestrator.engine.docker.errors import translated
from orchestrator.engine.protocol import LogChunk
from orchestrator.events import Stream

_AHEAD = 16
"""Chunks that may wait for the reader."""
_STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


def replay(client: docker.APIClient, container_id: str) -> Iterator[LogChunk]:
    """Yield the output from the first byte kept until the container ends.

    The SDK does not keep stdout and stderr of a log apart, so each is read on its own.

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
        except Exception as error:  # noqa: BLE001  # raised again by whoever reads
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
