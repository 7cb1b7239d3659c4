"""Services of the host for attacks to look for, on loopback and on the bridge only."""

import errno
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.bridge import bridge_gateway

CANARY = b"CANARY-host-service\n"
_TURN = 0.2
"""Interval, in seconds, at which a listener checks whether the test has ended."""


_TRIES = 20
"""Maximum number of random ports that are tried."""


@contextmanager
def host_services(gateway: str | None = None) -> Iterator[dict[str, str]]:
    """Serve during the block, and yield the gateway and the port as variables of a task.

    Args:
        gateway: An address of this machine on a bridge. Default: that of the engine's bridge.
    """
    gateway, done = gateway or bridge_gateway(), threading.Event()
    with ExitStack() as stack:
        servers = _listen(stack, gateway)
        port = servers[0].getsockname()[1]
        threads = [threading.Thread(target=_serve, args=(server, done)) for server in servers]
        for thread in threads:
            thread.start()
        try:
            yield {"GATEWAY": gateway, "PORT": str(port)}
        finally:
            done.set()
            for thread in threads:
                thread.join()


def _listen(stack: ExitStack, gateway: str) -> list[socket.socket]:
    """Bind one random port three times; try another port if another program uses it somewhere."""
    kinds = [(gateway, socket.SOCK_DGRAM), ("127.0.0.1", socket.SOCK_STREAM)]
    for tries_left in reversed(range(_TRIES)):
        with ExitStack() as attempt:
            first = attempt.enter_context(socket.create_server((gateway, 0)))
            port = first.getsockname()[1]
            try:
                servers = [first, *(_bound(attempt, host, port, kind) for host, kind in kinds)]
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not tries_left:
                    raise
                continue
            stack.enter_context(attempt.pop_all())
            return servers
    raise AssertionError("no attempt was made")


def _bound(stack: ExitStack, host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    server = stack.enter_context(socket.socket(socket.AF_INET, kind))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, port))
    if kind is socket.SOCK_STREAM:
        server.listen()
    return server


def _serve(server: socket.socket, done: threading.Event) -> None:
    server.settimeout(_TURN)
    while not done.is_set():
        try:
            if server.type == socket.SOCK_DGRAM:
                server.sendto(CANARY, server.recvfrom(100)[1])
            else:
                with server.accept()[0] as connection:
                    connection.sendall(CANARY)
        except OSError:
            continue
