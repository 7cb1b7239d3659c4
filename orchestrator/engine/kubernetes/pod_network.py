"""The network of a pod: which policy chooses it, and by what it resolves names."""

from typing import Any

from orchestrator.engine.interface.spec import BrokerLink
from orchestrator.engine.places.place import PlaceSpec
from orchestrator.network.gateway.allowed_host import BROKER_NAME

NETWORK = "orchestrator.network"
"""Label of a pod by which the network policies choose it: `none`, `open` or `broker`."""


def network_of(spec: PlaceSpec) -> str:
    """Return the network of a place's pod, which all of its steps share."""
    # protection: only-pod-of-broker-has-its-network
    if any(link.broker is None for link in _links(spec)):
        return "broker"
    egresses = [step.spec.egress for step in spec.steps if step.spec.egress is not None]
    # protection: pod-is-open-only-for-open-steps
    return "open" if any(egress.hosts is None for egress in egresses) else "none"


def broker_of(spec: PlaceSpec) -> str | None:
    """Return the address at which the steps of a place reach the broker; None without a broker."""
    return next((link.broker for link in _links(spec)), None)


def _links(spec: PlaceSpec) -> list[BrokerLink]:
    return [step.spec.link for step in spec.steps if step.spec.link is not None]


def names_by(spec: PlaceSpec) -> dict[str, Any]:
    """Return by what a pod resolves names."""
    broker = broker_of(spec)
    known = {"hostAliases": [{"ip": broker, "hostnames": [BROKER_NAME]}]} if broker else {}
    if network_of(spec) != "none":
        return {"dnsPolicy": "ClusterFirst", **known}
    return {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}, **known}
