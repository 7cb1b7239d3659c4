"""Write packet filter rules in the language of `nft`, for a worker's network and for the host."""

import ipaddress
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.engine.docker.machine_network import MachineNetwork
from orchestrator.engine.interface.spec import CLOSED, Egress

HOST = "host.docker.internal"
MOST_FLOWS = 1000
"""Maximum number of simultaneous connections (and UDP flows) of one worker."""
NEW_FLOWS = 50
"""Maximum number of new connections and UDP flows of one worker per second, on average. An ended
connection stays in the host's connection table for up to two minutes.
"""
BURST = 1000
"""Number of connections and UDP flows that a worker may open before the rate limit applies."""
_REFUSED = "refused"
"""Name of the guard's set of addresses and ports to which it refused TCP connections."""
_MOST_REFUSED = 64
LIST_REFUSED = ("nft", "--json", "list", "set", "inet", "guard", _REFUSED)
"""Command that prints this set."""
RESOLVER = "127.0.0.11"
"""Address of Docker's DNS resolver inside a container; the daemon outside answers the queries."""
LOCAL_FLOWS = 4000
"""Maximum number of simultaneous UDP flows of one worker to Docker's DNS resolver."""
QUESTIONS = 200
"""Maximum number of packets of one worker to Docker's DNS resolver per second, on average."""
_PER_WORKER = (
    "set open { type ipv4_addr; size 65535; flags dynamic; };",
    "set rate { type ipv4_addr; size 65535; timeout 1m; flags dynamic,timeout; };",
)
"""Sets of addresses in a run's network: none of its workers lacks a place in them."""
_LIMITS = (
    "meta nfproto ipv6 drop",
    f"ct state new add @open {{ ip saddr ct count over {MOST_FLOWS} }} drop",
    f"ct state new update @rate {{ ip saddr limit rate over {NEW_FLOWS}/second "
    f"burst {BURST} packets }} drop",
)
_WAYS = ("udp", "tcp")


def guard_rules(egress: Egress, machine: MachineNetwork) -> str:
    """Return the rules for a worker's own network namespace.

    Args:
        egress: Destinations that stay reachable.
        machine: The engine's machine.
    """
    # Excess packets are dropped, not refused: TCP retransmits by itself, so the connection only
    # waits.
    closed = _closed(machine)
    # protection: rules-of-worker
    lines = [
        f"ip daddr {RESOLVER} limit rate over {QUESTIONS}/second burst {BURST} packets drop",
        f'oifname "lo" ct state new ct count over {LOCAL_FLOWS} drop',
        'oifname "lo" accept',
        "ct state established,related accept",
        "meta nfproto ipv6 reject",
        f"ct state new ct count over {MOST_FLOWS} drop",
        f"ct state new limit rate over {NEW_FLOWS}/second burst {BURST} packets drop",
        *_accepted(egress, machine),
        f"ip daddr {{ {closed} }} meta l4proto tcp add @{_REFUSED} {{ ip daddr . tcp dport }}",
        f"ip daddr {{ {closed} }} reject",
    ]
    return _table(
        "guard",
        f"set {_REFUSED} {{ type ipv4_addr . inet_service; "
        f"size {_MOST_REFUSED}; flags dynamic; }};",
        _chain("untracked", "output priority raw", _untracked()),
        _chain("output", "output priority filter", lines),
    )


def _closed(machine: MachineNetwork) -> str:
    """Return the networks that are closed to a worker without overlaps, as `nft` requires."""
    # protection: hosts-addresses-closed
    networks = map(ipaddress.IPv4Network, (*CLOSED, *machine.addresses))
    return ", ".join(map(str, ipaddress.collapse_addresses(networks)))


def refused_lines(listed: bytes) -> list[bytes]:
    """Return a line, like those of a gateway, for each place to which a guard refused connections.

    Args:
        listed: Output of `LIST_REFUSED` in the guard.
    """
    found = []
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        for part in json.loads(listed)["nftables"]:
            for element in part.get("set", {}).get("elem", ()):
                address, port = element["concat"]
                found.append({"host": str(ipaddress.IPv4Address(address)), "port": int(port)})
    now, known = datetime.now(UTC).isoformat(), {"refused": "address", "sent": 0, "received": 0}
    return [f"{now} {json.dumps(place | known)}".encode() for place in found]


def _untracked() -> list[str]:
    """Return rules that exempt traffic inside a container from the kernel's connection tracking.

    The memory of the tracking table counts toward no container's limit, and the whole machine
    shares the table. Only Docker's resolver needs tracking, because its address is translated.
    """
    # protection: ipv4-flows-inside-container-are-not-tracked
    # protection: ipv6-flows-inside-container-are-not-tracked
    return [
        f'oifname "lo" ip saddr != {RESOLVER} ip daddr != {RESOLVER} notrack',
        'oifname "lo" meta nfproto ipv6 notrack',
    ]


def cut_rules() -> str:
    """Return the rules that leave a network namespace nothing but its own `localhost`.

    They come before all others and before the kernel's connection tracking, so they hold for
    connections that are open too. Docker's resolver would ask the machine's name servers from
    outside.
    """
    # protection: rules-of-cut-off-container
    goes_out = [
        f"ip daddr {RESOLVER} reject",
        'oifname "lo" accept',
        "meta l4proto tcp reject with tcp reset",
        "reject",
    ]
    comes_in = ['iifname "lo" accept', "drop"]
    # As the last attempt may have been interrupted, the table is replaced.
    return "add table inet cut; delete table inet cut\n" + _table(
        "cut",
        _chain("output", "output priority -500", goes_out),
        _chain("input", "input priority -500", comes_in),
    )


def host_rules(
    name: str, interface: str, egress: Egress, machine: MachineNetwork, *, workers: bool = False
) -> str:
    """Return rules that block packets from one bridge to any address of the host.

    The rules see packets before address translation, so that published ports of other containers
    are blocked too. The `nft` process owns the table: the kernel removes the table when the
    process ends.

    Args:
        name: Name of the table.
        interface: Name of the bridge.
        egress: Destinations that stay reachable.
        machine: The engine's machine.
        workers: Whether workers are in the network without a guard. Their connections are then
            filtered and limited here as well, from a worker's first packet on.
    """
    # protection: rules-of-host
    lines = [
        f'iifname != "{interface}" accept',
        "ct state established,related accept",
        *(_LIMITS if workers else ()),
        *_accepted(egress, machine),
        *([f"ip daddr {{ {_closed(machine)} }} reject"] if workers else ()),
        "fib daddr type { local, broadcast, multicast, anycast } "
        "counter reject with icmpx type admin-prohibited",
    ]
    sets = _PER_WORKER if workers else ()
    chain = _chain("prerouting", "prerouting priority mangle", lines)
    # protection: hosts-rules-end-with-process-that-set-them
    return _table(name, "flags owner;", *sets, chain)


def _table(name: str, *parts: str) -> str:
    """Return an `nft` table with the given parts on a single line, as `nft -i` requires.

    A table of this name must not exist.
    """
    return f"create table inet {name} {{ {' '.join(parts)} }}\n"


def _chain(name: str, hook: str, lines: list[str]) -> str:
    body = " ".join(f"{line};" for line in lines)
    return f"chain {name} {{ type filter hook {hook}; policy accept; {body} }};"


def _accepted(egress: Egress, machine: MachineNetwork) -> Iterator[str]:
    yield from (f"{_match(*place, gateway=machine.gateway)} accept" for place in egress.allowed)
    for server in machine.resolvers:
        # protection: name-servers-reachable-at-port-53-only
        yield from (f"ip daddr {server} {way} dport 53 accept" for way in _WAYS)


def _match(address: str, port: int | None, *, gateway: str) -> str:
    address = gateway if address == HOST else str(ipaddress.IPv4Network(address))
    return f"ip daddr {address}" + (f" tcp dport {port}" if port is not None else "")
