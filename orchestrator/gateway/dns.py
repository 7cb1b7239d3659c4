"""Write the configuration of `dnsmasq`, which runs in a gateway as a worker's only name server."""

from collections.abc import Iterator

from orchestrator.gateway.allowed_host import BROKER_NAME
from orchestrator.gateway.plan import NAME_SERVER, GatewayPlan

_TTL = 60


def dns_configuration(plan: GatewayPlan) -> str:
    """Return a `dnsmasq` configuration that resolves listed names to the gateway, and no others.

    With the network setting `learn`, every name is resolved to the gateway. No query is forwarded,
    so that no data can leave as part of a name.
    """
    return "\n".join([*_settings(plan), *_records(plan), ""])


def _settings(plan: GatewayPlan) -> list[str]:
    return [
        "no-resolv",
        "no-hosts",
        "no-poll",
        # The container already starts `dnsmasq` as an unprivileged user.
        "user=",
        "pid-file=",
        f"port={NAME_SERVER}",
        f"listen-address={plan.address}",
        "bind-interfaces",
        f"local-ttl={_TTL}",
        # All queries are answered here, even if no record of the type exists.
        "local=/#/",
        "log-queries=extra",
        "log-async=100",
    ]


def _records(plan: GatewayPlan) -> Iterator[str]:
    if plan.broker is not None:
        yield f"host-record={BROKER_NAME},{plan.address}"
    if plan.learn:
        yield f"address=/#/{plan.address}"
        return
    for name, below in sorted({(host.name, host.below) for host in plan.hosts}):
        if below:
            yield f"address=/*.{name}/{plan.address}"
        else:
            yield f"host-record={name},{plan.address}"
