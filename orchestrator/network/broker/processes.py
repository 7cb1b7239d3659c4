"""Pass each worker's connections to a process of its own, so that a worker harms only itself.

A call that needs all memory or time of its process leaves the processes of other workers alone. The
dispatching process reads nothing that workers send. A process that died is started again at the
worker's next connection, and reads the worker's ledger again.
"""

import asyncio
import ctypes
import errno
import os
import resource
import selectors
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

MEMORY = 384 * 1024**2
"""Maximum size in bytes of the data of one worker's process."""
_PAUSE = 2.0
"""Seconds between two checks whether workers have ended."""
_MOST_ACCEPTED = 64
_UNKNOWN = ""
"""Key of the process for all addresses without a grant, whose calls are refused."""
_PARENT_DEATH_SIGNAL = 1
_NICE = 5
_KILLED_FIRST = b"500"


class Dispatcher:
    """Accepts connections, and passes each to the process of the worker that opened it."""

    def __init__(
        self, listener: socket.socket, grants: Path, serve: Callable[[socket.socket], None]
    ) -> None:
        """Store the arguments.

        Args:
            listener: The socket that accepts connections.
            grants: The directory with a grant for the address of each worker.
            serve: Function that handles the connections that a channel delivers, until its end.
        """
        self._listener = listener
        self._grants = grants
        self._serve = serve
        self._channels: dict[str, socket.socket] = {}

    def run(self) -> NoReturn:
        """Accept connections until the process is ended."""
        # Processes that end leave nothing behind.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self._listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                if selector.select(_PAUSE):
                    self._accept()
                # Processes of workers that have ended end too, each after its last answer.
                for key in [key for key in self._channels if key and not self._has_grant(key)]:
                    self._channels.pop(key).close()

    def _accept(self) -> None:
        for _ in range(_MOST_ACCEPTED):
            try:
                connection, (address, *_) = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # The client has gone already, or there are too many connections.
                continue
            with connection, suppress(OSError):
                self._pass_on(connection, address)

    def _pass_on(self, connection: socket.socket, address: str) -> None:
        # protection: each-worker-has-process
        key = address if self._has_grant(address) else _UNKNOWN
        for _ in range(2):
            channel = self._channels.get(key) or self._start(key, connection)
            try:
                socket.send_fds(channel, [b"\0"], [connection.fileno()])
            except BlockingIOError:  # The process does not take its connections.
                return
            except OSError as error:
                if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                    raise
                # The process has died.
                self._channels.pop(key).close()
            else:
                return

    def _has_grant(self, address: str) -> bool:
        return (self._grants / f"{address}.json").exists()

    def _start(self, key: str, connection: socket.socket) -> socket.socket:
        """Start the process for a key, and return the channel to it; `connection` is its first."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            status = 1
            try:
                for inherited in (ours, connection, self._listener, *self._channels.values()):
                    inherited.close()
                # Limit this process, and let the kernel kill it before the dispatching process.
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                # protection: no-process-outlives-broker
                ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
                # protection: memory-of-workers-process-limited
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                os.nice(_NICE)
                with suppress(OSError):
                    Path("/proc/self/oom_score_adj").write_bytes(_KILLED_FIRST)
                self._serve(theirs)
                status = 0
            except Exception:  # noqa: BLE001 - the copy of the dispatching process ends here
                traceback.print_exc()
            finally:
                os._exit(status)
        theirs.close()
        ours.setblocking(False)
        self._channels[key] = ours
        return ours


async def next_connection(
    loop: asyncio.AbstractEventLoop, channel: socket.socket
) -> socket.socket | None:
    """Wait for the next connection that a channel delivers; return None at the channel's end."""
    while True:
        arrived = asyncio.Event()
        loop.add_reader(channel, arrived.set)
        try:
            await arrived.wait()
        finally:
            loop.remove_reader(channel)
        data, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if descriptors:
            connection = socket.socket(fileno=descriptors[0])
            connection.setblocking(False)
            return connection
        if not data:
            return None
