"""Plans of gateways for tests."""

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.engine.interface.spec import CLOSED
from orchestrator.network.gateway.hosts import parse_host
from orchestrator.network.gateway.plan import GatewayPlan


def make_plan(
    *entries: str,
    own: tuple[str, ...] = ("192.0.2.2", "172.17.0.1"),
    learn: bool = False,
    published: Mapping[int, int] = MappingProxyType({}),
) -> GatewayPlan:
    """Return a plan with these entries of an allow-list."""
    return GatewayPlan(
        hosts=tuple(map(parse_host, entries)),
        learn=learn,
        address="198.18.0.3",
        worker="198.18.0.2",
        resolvers=("203.0.113.53",),
        machine="172.17.0.1",
        closed=CLOSED,
        own=own,
        published=published,
        publisher="172.18.0.1" if published else None,
    )
