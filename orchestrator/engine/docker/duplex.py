"""A connection to a command, whose input can end while its output goes on; also with TLS."""

import os
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

_CHUNK = 256 * 1024


class Duplex:
    """A connection that one thread may read while another one writes to it."""

    def __init__(self, connection: Any, patience: float | None) -> None:  # noqa: ANN401
        """Take over a connection of docker-py.

        Args:
            connection: What docker-py returns for `socket=True`.
            patience: Seconds for which the other side may be silent, or take nothing.
        """
        # The socket itself, without docker-py's wrappers: it is writable.
        self._socket: socket.socket = getattr(connection, "_sock", connection)
        self._response, self._patience = connection._response, patience
        # OpenSSL must not be called by two threads at once; none waits while it has the lock.
        self._lock = threading.Lock()
        self._socket.setblocking(False)
        # The first bytes may already be in the buffer of the HTTP response.
        reader, self._early = self._response.raw._fp.fp, b""
        with suppress(ssl.SSLWantReadError):
            self._early = reader.read1(len(reader.peek()))

    def receive(self, timeout: float | None = None) -> bytes | None:
        """Return bytes; none at the end, and None if there are none for so many seconds.

        Raises:
            TimeoutError: There are none for longer than the other side may be silent.
        """
        if early := self._early:
            self._early = b""
            return early
        until = _until(self._patience if timeout is None else timeout)
        while True:
            try:
                with self._lock:
                    return self._socket.recv(_CHUNK)
            except ssl.SSLZeroReturnError:
                # The end, after `end`.
                return b""
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            if not self._is_ready(select.POLLIN, until):
                if timeout is not None:
                    return None
                raise TimeoutError("the other side of the connection is silent")

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            TimeoutError: The other side does not take them.
        """
        view = memoryview(data)
        while view:
            until = _until(self._patience)
            with suppress(BlockingIOError, ssl.SSLWantWriteError), self._lock:
                view = view[self._socket.send(view) :]
                continue
            if not self._is_ready(select.POLLOUT, until):
                raise TimeoutError("the other side of the connection takes nothing")

    def _is_ready(self, event: int, until: float | None) -> bool:
        if self._socket.fileno() < 0:
            raise ConnectionAbortedError("the connection was closed here")
        ready = select.poll()
        ready.register(self._socket, event)
        return bool(ready.poll(until and max(0.0, until - time.monotonic()) * 1000))

    def end(self) -> None:
        """Say that nothing more will be sent; what the other side sends can still be read."""
        if not isinstance(self._socket, ssl.SSLSocket):
            self._socket.shutdown(socket.SHUT_WR)
            return
        # With TLS, a record says so. OpenSSL reads after it has written that record, and drops what
        # it reads. So it does both on another socket, which has nothing to read.
        ours, other = socket.socketpair()
        with ours, other, self._lock:
            other.setblocking(False)
            number = self._socket.fileno()
            kept = os.dup(number)
            try:
                os.dup2(other.fileno(), number, inheritable=False)
                with suppress(ssl.SSLWantReadError):
                    self._socket.unwrap()
            finally:
                os.dup2(kept, number, inheritable=False)
                os.close(kept)
            ours.setblocking(False)
            record = ours.recv(_CHUNK)
        while record:
            with suppress(BlockingIOError):
                record = record[os.write(number, record) :]
                continue
            if not self._is_ready(select.POLLOUT, _until(self._patience)):
                return

    def close(self) -> None:
        """Close the connection; a thread that reads from it or writes to it notices that."""
        with suppress(OSError):
            # That of TLS would forget the keys while another thread may use them.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        with self._lock:
            self._response.close()
            self._socket.close()


def _until(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
