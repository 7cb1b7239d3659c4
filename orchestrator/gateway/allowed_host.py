"""One entry of an allow-list."""

from dataclasses import dataclass

DOCKER_HOST = "host.docker.internal"
"""Name of the host inside a container; no name server knows it."""
BROKER_NAME = "broker.internal"
"""Name of the credential broker inside a container; no name server knows it."""
BROKER_PORT = 8080


@dataclass(frozen=True, kw_only=True, order=True)
class AllowedHost:
    """A host, or all hosts below a domain, that a worker may reach at one port."""

    name: str
    """Name in lower case and ASCII, without `*.`: only letters, digits, `.` and `-`."""
    below: bool = False
    """Whether the entry stands for all names below `name`, but not for `name` itself."""
    port: int = 443
    plain: bool = False
    """Whether the host speaks HTTP without TLS at this port."""
    network: str | None = None
    """Private network in which the host may lie; None: only public addresses."""
