"""Ports of this machine for servers that a test starts later."""

import random
import socket
from contextlib import suppress
from pathlib import Path


def free_port() -> int:
    """Return a free port that the kernel gives to nobody, so that it is still free later."""
    _, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    for port in random.sample(range(int(last) + 1, 65536), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
