"""Listen at ports of this machine whose connections lead into a container."""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

from orchestrator.base.errors import PortTakenError

_PATIENCE = 1.0
"""Seconds to wait for the end of listening; it takes longer if there is no room for connections."""


class PortListener:
    """Listens at ports of 127.0.0.1 until `close`; every connection is carried on its own."""

    def __init__(self, carry: Callable[[socket.socket, int], None], *, most: int) -> None:
        """Store the arguments; nothing listens yet.

        Args:
            carry: Carries a connection to a port in the container until one of them ends it; the
                connection is closed afterwards.
            most: Connections at the same time; further ones wait.
        """
        self._carry = carry
        self._room = threading.BoundedSemaphore(most)
        self._listeners: list[tuple[socket.socket, threading.Thread]] = []

    def listen(
        self, ports: Mapping[int, int], *, check: Callable[[], object] = lambda: None
    ) -> dict[int, int]:
        """Let ports of 127.0.0.1 lead to ports of the container.

        Args:
            ports: The port in the container, and the port here; 0 is any that is free.
            check: Called before a connection is taken; if it fails, nothing listens.

        Returns:
            The ports in the container, and those here.

        Raises:
            PortTakenError: A port is in use; no other one of `ports` is either then.
        """
        with ExitStack() as undo:
            made = {}
            for inside, here in ports.items():
                made[inside] = undo.enter_context(_listener(here))
            check()
            undo.pop_all()
        found = {inside: listener.getsockname()[1] for inside, listener in made.items()}
        for inside, listener in made.items():
            thread = threading.Thread(
                target=self._accept, args=(listener, inside), daemon=True, name=f"port-{inside}"
            )
            thread.start()
            self._listeners.append((listener, thread))
        return found

    def close(self) -> None:
        """Listen no more; connections that are carried go on."""
        for listener, _ in self._listeners:
            # Ends `accept` in the other thread, which then closes it. If it were closed here, that
            # thread could wait at another socket with the same number.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        for _, thread in self._listeners:
            thread.join(_PATIENCE)
        self._listeners.clear()

    def _accept(self, listener: socket.socket, port: int) -> None:
        with listener:
            while True:
                self._room.acquire()
                try:
                    taken, _ = listener.accept()
                except OSError:
                    self._room.release()
                    return
                threading.Thread(target=self._serve, args=(taken, port), daemon=True).start()

    def _serve(self, taken: socket.socket, port: int) -> None:
        try:
            with taken:
                self._carry(taken, port)
        finally:
            self._room.release()


def _listener(port: int) -> socket.socket:
    try:
        # protection: ports-are-for-this-machine-only
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise PortTakenError(
            f"cannot listen at the port {port}: {error.strerror}", key="port.taken"
        ) from error
