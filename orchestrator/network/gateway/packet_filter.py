"""Write packet filter rules in the language of `nft` for a worker's network and for its gateway."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.network.gateway.allowed_host import BROKER_PORT
from orchestrator.network.gateway.plan import NAME_SERVER, GatewayPlan

PROGRAM = 13
"""User id under which the name server and the proxy of a gateway run."""
_QUESTIONS, _QUESTIONS_AT_ONCE = 32, 512
"""Limits on the queries that a gateway's name server receives: average number of KiB per second,
and number of KiB in a burst.
"""
_REFUSE = "reject with icmpx type admin-prohibited"


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Limits on the number of network connections (and UDP flows) of one worker."""

    open: int
    """Maximum number of simultaneous connections."""
    per_second: int
    """Maximum number of new connections per second, in the long run."""
    burst: int
    """Number of connections that may be opened before the rate applies."""

    def rules(self) -> list[str]:
        """Return rules that drop packets beyond the limits."""
        # Excess packets are dropped, not refused: TCP retransmits by itself, so the connection only
        # waits.
        return [
            f"ct state new ct count over {self.open} drop",
            f"ct state new limit rate over {self.per_second}/second burst {self.burst} packets "
            "drop",
        ]


def worker_rules(plan: GatewayPlan, rates: Rates) -> str:
    """Return the rules for a worker's network namespace: the worker can send only to its gateway.

    Worker and gateway are the only members of their network. The rules reject other packets, so
    that programs fail at once. They also block the engine's own name server, and limit the number
    of connections.
    """
    # protection: engines-name-server-closed-with-allow-list
    out = [
        # The engine's name server runs in its daemon, outside of the worker's limits.
        f"ip daddr 127.0.0.11 {_REFUSE}",
        'oifname "lo" accept',
        "ct state established,related accept",
        f"meta nfproto ipv6 {_REFUSE}",
        *rates.rules(),
        f"ip daddr {plan.address} udp dport {NAME_SERVER} accept",
        f"ip daddr {plan.address} tcp dport {_ports(plan)} accept",
        _REFUSE,
    ]
    # protection: worker-can-send-only-to-its-gateway
    return _table(
        # No container's limit covers the memory of the table of connections, and its buckets serve
        # the whole machine.
        _chain("untracked", "output", "raw", "accept", ['oifname "lo" notrack']),
        _chain("output", "output", "filter", "drop", out),
    )


def gateway_rules(plan: GatewayPlan, rates: Rates) -> str:
    """Return the rules for a gateway's network namespace.

    The rules restrict the addresses that the gateway can reach, whatever its name server and its
    proxy decide.
    """
    # protection: gateway-serves-only-its-worker
    here = f"ip saddr {plan.worker} ip daddr {plan.address}"
    # Only the engine may connect to published ports. The rule is before the limits, which are for
    # connections that the worker opens.
    # protection: only-engine-reaches-published-ports
    published = (
        [f"ip saddr {plan.publisher} tcp dport {_set(plan.published.values())} accept"]
        if plan.published
        else []
    )
    # protection: gateway-drops-packets-with-foreign-source-addresses
    # protection: queries-to-gateways-name-server-are-limited
    came_in = [
        'iifname "lo" accept',
        # The answers and their log are outside of the worker's limits. Retries make up for drops.
        f"ip saddr {plan.worker} meta l4proto {{ tcp, udp }} th dport {NAME_SERVER} "
        f"limit rate over {_QUESTIONS} kbytes/second burst {_QUESTIONS_AT_ONCE} kbytes drop",
        "ct state established,related accept",
        # An address that does not belong to the network it came from.
        "fib saddr . iif oif missing drop",
        *published,
        *rates.rules(),
        f"{here} udp dport {NAME_SERVER} accept",
        f"{here} tcp dport {_ports(plan)} accept",
        _REFUSE,
    ]
    # protection: connections-of-gateway
    goes_out = [
        'oifname "lo" accept',
        "ct state established,related accept",
        f"meta nfproto ipv6 {_REFUSE}",
        # Nothing here but the two programs opens a connection.
        f"meta skuid != {PROGRAM} {_REFUSE}",
        *_openings(plan),
        f"ip daddr {_set(plan.not_public)} {_REFUSE}",
        *([f"tcp dport {_set(plan.host_ports)} accept"] if plan.host_ports else ()),
        _REFUSE,
    ]
    # protection: gateway-forwards-nothing
    return _table(
        _chain("input", "input", "filter", "drop", came_in),
        _chain("forward", "forward", "filter", "drop", []),
        _chain("output", "output", "filter", "drop", goes_out),
    )


def _openings(plan: GatewayPlan) -> Iterator[str]:
    if plan.published:
        # protection: published-ports-lead-to-workers-listed-ports-alone
        yield f"ip daddr {plan.worker} tcp dport {_set(plan.published)} accept"
    if plan.broker is not None:
        yield f"ip daddr {plan.broker} tcp dport {BROKER_PORT} accept"
    for server in plan.resolvers:
        yield f"ip daddr {server} udp dport {NAME_SERVER} accept"
        yield f"ip daddr {server} tcp dport {NAME_SERVER} accept"
    for port in plan.ports_of_machine:
        yield f"ip daddr {plan.machine} tcp dport {port} accept"
    # protection: allow-list-cannot-open-hosts-addresses
    yield f"ip daddr {_set(plan.unreachable)} {_REFUSE}"
    for host in plan.private:
        yield f"ip daddr {host.network} tcp dport {host.port} accept"


def _ports(plan: GatewayPlan) -> str:
    # A name server answers long answers over TCP.
    return _set((NAME_SERVER, *plan.ports))


def _set(elements: Iterable[object]) -> str:
    return f"{{ {', '.join(dict.fromkeys(map(str, elements)))} }}"


def _table(*chains: str) -> str:
    return "\n".join(["table inet guard {", *chains, "}", ""])


def _chain(name: str, hook: str, priority: str, policy: str, rules: list[str]) -> str:
    head = f"type filter hook {hook} priority {priority}; policy {policy};"
    return "\n".join([f"chain {name} {{", head, *rules, "}"])
