"""Carry connections from a socket file to ports of `localhost`, in a container of ours.

The container shares the network of a sandbox and nothing else. It runs as a program of its own that
needs only Python's library.
"""

import asyncio
from asyncio import StreamReader, StreamWriter

_PIECE = 64 * 1024


async def _pass(source: StreamReader, sink: StreamWriter, other: StreamWriter) -> None:
    """Pass on what comes, and its end; after an error, end the other direction, too."""
    try:
        while data := await source.read(_PIECE):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    except OSError:
        sink.close()
        other.close()


async def _connect(port: int) -> tuple[StreamReader, StreamWriter]:
    try:
        return await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return await asyncio.open_connection("::1", port)


async def _carry(reader: StreamReader, writer: StreamWriter) -> None:
    """Carry a connection to the port that its first two bytes name."""
    try:
        inside, towards = await _connect(int.from_bytes(await reader.readexactly(2), "big"))
    except (OSError, EOFError):
        writer.close()
        return
    await asyncio.gather(_pass(reader, towards, writer), _pass(inside, writer, towards))
    towards.close()
    writer.close()


async def _serve(path: str) -> None:
    async with await asyncio.start_unix_server(_carry, path) as server:
        await server.serve_forever()


def main(path: str) -> None:
    """Serve at a socket file that does not exist yet, until the container ends."""
    asyncio.run(_serve(path))
