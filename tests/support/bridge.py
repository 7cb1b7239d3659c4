"""Address at which containers reach this machine: the gateway of Docker's default bridge."""

import http.client
import ipaddress
import json
import os
import socket

_DEFAULT_SOCKET = "/var/run/docker.sock"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def bridge_gateway() -> str:
    """Return the gateway's address, as the daemon on this machine reports it.

    Raises:
        OSError: No daemon listens on its socket.
    """
    host = os.environ.get("DOCKER_HOST", "")
    path = host.removeprefix("unix://") if host.startswith("unix://") else _DEFAULT_SOCKET
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/networks/bridge")
        network = json.load(connection.getresponse())
    finally:
        connection.close()
    pool = network["IPAM"]["Config"][0]
    # Docker omits a gateway that it chose itself: the first address of the subnet.
    return pool.get("Gateway") or str(next(ipaddress.ip_network(pool["Subnet"]).hosts()))
