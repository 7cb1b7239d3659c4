"""Write the configuration of `dnsmasq`, a worker's only name server."""

from collections.abc import Iterator

from orchestrator.gateway.plan import NAME_SERVER, GatewayPlan

_TTL = 60


def names_configuration(plan: GatewayPlan) -> str:
    """Return a configuration in which every listed name is the gateway, and no other name exists.

    No question is passed on, so that a name carries nothing out.
    """
    return "\n".join([*_settings(plan), *_records(plan), ""])


def _settings(plan: GatewayPlan) -> list[str]:
    return [
        "no-resolv",
        "no-hosts",
        "no-poll",
        # It is started as the right user already.
        "user=",
        "pid-file=",
        f"port={NAME_SERVER}",
        f"listen-address={plan.address}",
        "bind-interfaces",
        f"local-ttl={_TTL}",
        # Everything is answered here, also where no record of this type exists.
        "local=/#/",
    ]


def _records(plan: GatewayPlan) -> Iterator[str]:
    for name, below in sorted({(host.name, host.below) for host in plan.hosts}):
        if below:
            yield f"address=/*.{name}/{plan.address}"
        else:
            yield f"host-record={name},{plan.address}"
