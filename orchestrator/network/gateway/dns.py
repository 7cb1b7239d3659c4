"""Write the configuration of `dnsmasq`, which runs in a gateway as a worker's only name server."""

from orchestrator.network.gateway.allowed_host import BROKER_NAME
from orchestrator.network.gateway.plan import NAME_SERVER, GatewayPlan

_TTL = 60


def dns_configuration(plan: GatewayPlan) -> str:
    """Return a `dnsmasq` configuration that resolves listed names to the gateway, and no others.

    With the network setting `learn`, every name is resolved to the gateway. No query is forwarded,
    so that no data can leave as part of a name.
    """
    # protection: unlisted-names-do-not-resolve
    # protection: dns-queries-are-not-forwarded
    lines = [
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
    if plan.broker is not None:
        lines.append(f"host-record={BROKER_NAME},{plan.address}")
    # protection: only-network-learn-answers-unlisted-names
    if plan.learn:
        lines.append(f"address=/#/{plan.address}")
    else:
        for name, below in sorted({(host.name, host.below) for host in plan.hosts}):
            if below:
                lines.append(f"address=/*.{name}/{plan.address}")
            else:
                lines.append(f"host-record={name},{plan.address}")
    return "\n".join([*lines, ""])
