"""Ports of this machine that lead into a sandbox, whatever its network is.

A container of ours shares the sandbox's network, and nothing else of it. It serves at a socket file
in a directory that both see, the container and this process, and the sandbox does not. Nothing is
published: a sandbox without a network stays one.
"""

import os
import secrets
import socket
import threading
import time
from contextlib import suppress

from orchestrator.base.errors import ConfigError, EngineError, OrchestratorError
from orchestrator.base.files.bundle import bundle
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.protocol import Container, ContainerEngine
from orchestrator.engine.interface.spec import BindMount, ContainerSpec
from orchestrator.engine.places.port_listener import PortListener
from orchestrator.sandbox.home import Home

_SEEN_AS = "/run/ports"
_PROGRAM = "orchestrator.sandbox.live.port_carrier"
_MOST_CONNECTIONS = 256
"""Connections to a sandbox at the same time; further ones wait."""
_MEMORY = 64 * 1024**2
_PATIENCE = 30.0
"""Seconds until the container must serve."""
_LOOK = 0.01
_PIECE = 64 * 1024


class ExposedPorts:
    """The ports of one sandbox that this process has exposed. Several threads may use it."""

    def __init__(self, home: Home, engine: ContainerEngine, container: Container) -> None:
        """Store the arguments; nothing is created.

        Args:
            home: The directory of the sandbox.
            engine: The engine.
            container: The sandbox's container.
        """
        self._home = home
        self._engine = engine
        self._inside = container
        self._listener = PortListener(self._carry, most=_MOST_CONNECTIONS)
        self._carrier: Container | None = None
        self._name = secrets.token_hex(4)
        """Name of the socket file."""
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()

    def expose(self, port: int, at: int) -> str:
        """See `Sandbox.expose`."""
        # A service may begin to listen later, so only the number is checked.
        if not 0 < port < 65_536 or not 0 <= at < 65_536:
            raise ConfigError(f"no port: {port} at {at}", key="sandbox.port")
        with self._lock:
            if port not in self._known:
                if self._carrier is None:
                    self._carrier = self._start()
                self._known[port] = f"127.0.0.1:{self._listener.listen({port: at})[port]}"
            return self._known[port]

    def close(self) -> None:
        """Listen no more, and end the connections."""
        with self._lock:
            self._listener.close()
            self._known.clear()
            if self._carrier is not None:
                self._carrier.remove()
                self._carrier = None

    def _start(self) -> Container:
        home = self._home
        with suppress(FileExistsError):
            home.ports.mkdir(mode=0o700)
            if home.user != os.getuid():
                os.chown(home.ports, home.user, home.group)
        carrier = self._engine.start(
            ContainerSpec(
                name=f"orchestrator-sandbox-{home.id}-ports-{self._name}",
                image=BASE_IMAGE,
                command=("python3", "-I", "-c", bundle(_PROGRAM), f"{_SEEN_AS}/{self._name}"),
                user=f"{home.user}:{home.group}",
                workdir="/",
                labels={**home.all_labels, ROLE: "ports"},
                mounts=(BindMount(source=home.ports, target=_SEEN_AS, read_only=False),),
                network_of=self._inside.id,
                memory=_MEMORY,
                pids=16,
            )
        )
        try:
            until = time.monotonic() + _PATIENCE
            while not self._serves():
                if time.monotonic() > until or carrier.state().ended_at is not None:
                    raise EngineError(
                        "the container that carries connections into the sandbox does not serve",
                        key="sandbox.ports-failed",
                    )
                time.sleep(_LOOK)
        except BaseException:
            carrier.remove()
            raise
        return carrier

    def _serves(self) -> bool:
        try:
            self._dial().close()
        except OSError:
            return False
        return True

    def _dial(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        try:
            # The path of a socket may have 107 bytes only.
            folder = os.open(self._home.ports, os.O_PATH | os.O_DIRECTORY)
            try:
                made.connect(f"/proc/self/fd/{folder}/{self._name}")
            finally:
                os.close(folder)
        except BaseException:
            made.close()
            raise
        return made

    def _carry(self, taken: socket.socket, port: int) -> None:
        with suppress(OSError, OrchestratorError), self._dial() as inner:
            inner.sendall(port.to_bytes(2, "big"))
            answers = threading.Thread(target=_pass, args=(inner, taken), daemon=True)
            answers.start()
            _pass(taken, inner)
            answers.join()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes, and its end; after an error, end the other direction, too."""
    how = socket.SHUT_WR
    try:
        while data := source.recv(_PIECE):
            sink.sendall(data)
    except OSError:
        how = socket.SHUT_RDWR
        with suppress(OSError):
            source.shutdown(how)
    with suppress(OSError):
        sink.shutdown(how)
