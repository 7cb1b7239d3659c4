"""The addresses, routes and name servers of the machine on which the engine runs.

An engine may be on another machine, also behind a Unix socket of this one: its packet filters must
close the addresses of its own machine.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.text.split_lines import split_lines

_ROUTES = Path("/proc/net/fib_trie")
"""File in which the kernel lists its routes, with the addresses of the machine."""
_NETWORKS = Path("/proc/net/route")
_INTERFACES = Path("/sys/class/net")
_RESOLV = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))


@dataclass(frozen=True, kw_only=True)
class MachineNetwork:
    """What packet filters and new networks must know of a machine."""

    gateway: str
    """Address of the machine on the engine's default bridge."""
    addresses: tuple[str, ...] = ()
    """All IPv4 addresses, including public ones, as the kernel lists them."""
    routed: tuple[ipaddress.IPv4Network, ...] = ()
    """Destinations of the kernel's routes, without the default route."""
    interfaces: tuple[str, ...] = ()
    """Names of network interfaces."""
    resolvers: tuple[str, ...] = ()
    """Name servers that Docker's resolver queries for a container."""


def this_machine(gateway: str) -> MachineNetwork:
    """Return what the kernel and the files of this machine say now."""
    resolv = "\n".join(path.read_text() for path in _RESOLV if path.exists())
    interfaces = "\n".join(path.name for path in _INTERFACES.iterdir())
    return parse(gateway, _ROUTES.read_text(), _NETWORKS.read_text(), resolv, interfaces)


def parse(
    gateway: str, trie: str, routes: str, resolv: str, interfaces: str = ""
) -> MachineNetwork:
    """Return what texts say: `/proc/net/fib_trie` and `route`, `resolv.conf`, names of interfaces.

    Raises:
        ValueError: A text has another form.
        LookupError: A line is too short.
    """
    return MachineNetwork(
        gateway=gateway,
        addresses=tuple(_addresses(split_lines(trie))),
        routed=tuple(_routed(split_lines(routes)[1:])),
        interfaces=tuple(interfaces.split()),
        resolvers=tuple(_resolvers(split_lines(resolv))),
    )


def _addresses(lines: Iterable[str]) -> list[str]:
    found, address = set(), ""
    for line in lines:
        words = line.split()
        if words[:1] == ["|--"]:
            address = str(ipaddress.IPv4Address(words[1]))
        elif words[:3] == ["/32", "host", "LOCAL"] and not address.startswith("127."):
            found.add(address)
    return sorted(found)


def _routed(lines: Iterable[str]) -> list[ipaddress.IPv4Network]:
    found = []
    for line in lines:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
        if mask:
            found.append(ipaddress.IPv4Network((address & mask, mask.bit_count())))
    return found


def _resolvers(lines: Iterable[str]) -> list[str]:
    found = {words[1] for line in lines if (words := line.split())[:1] == ["nameserver"]}
    parsed = [ipaddress.ip_address(address.partition("%")[0]) for address in sorted(found)]
    return [str(address) for address in parsed if address.version == 4 and not address.is_loopback]
