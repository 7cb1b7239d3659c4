"""One entry of an allow-list: a host that a worker may reach."""

from dataclasses import dataclass

DOCKER_HOST = "host.docker.internal"
"""Name by which containers reach the host machine; it exists only in containers."""
BROKER_NAME = "broker.internal"
"""Name by which workers reach the credential broker. No name server knows this name."""
BROKER_PORT = 8080


@dataclass(frozen=True, kw_only=True, order=True)
class AllowedHost:
    """A host, or all hosts below a domain, that a worker may reach at one port."""

    name: str
    """Host name in lower case and ASCII, without `*.`: only letters, digits, `.` and `-`."""
    below: bool = False
    """Whether the entry means all names below `name`, but not `name` itself."""
    port: int = 443
    plain: bool = False
    """Whether the host uses HTTP without TLS at this port."""
    network: str | None = None
    """Private network in which the host's address may be; None: only public addresses."""
