"""Choose subnets for workers' networks, because Docker's own pools suffice for only 30 networks."""

import ipaddress
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.text.split_lines import split_lines

_POOLS = (ipaddress.IPv4Network("198.18.0.0/15"), ipaddress.IPv4Network("10.201.0.0/16"))
"""Address ranges to choose subnets from: the range for benchmarks (RFC 2544), and a private range
for machines that already use the range for benchmarks.
"""
SMALLEST = 29
"""Prefix length of a subnet with room for a worker and its gateway."""
_TRIES = 100


def free_subnets(
    used: Iterable[str], routes: Path = Path("/proc/net/route"), *, prefix: int = SMALLEST
) -> Iterator[ipaddress.IPv4Network]:
    """Yield subnets that overlap with no route of this machine, in random order.

    Args:
        used: Addresses that must not be in a subnet, because they must stay reachable.
        routes: The kernel's list of routes.
        prefix: Length of each subnet's prefix.
    """
    taken = [*_routed(routes), *map(ipaddress.IPv4Network, used)]
    for pool in _POOLS:
        for _ in range(_TRIES):
            offset = secrets.randbelow(2 ** (prefix - pool.prefixlen)) << (32 - prefix)
            subnet = ipaddress.IPv4Network((int(pool.network_address) + offset, prefix))
            if not any(subnet.overlaps(other) for other in taken):
                yield subnet


def _routed(routes: Path) -> Iterator[ipaddress.IPv4Network]:
    """Yield the destinations of the kernel's routes, without the default route."""
    for line in split_lines(routes.read_text())[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
        if mask:
            yield ipaddress.IPv4Network((address & mask, mask.bit_count()))
