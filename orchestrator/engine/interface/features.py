"""What an engine can do on its machine, and which limits of containers it enforces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.config.settings.values import Limit

Enforcement = Literal["kernel", "watched", "no"]
"""How a limit is enforced: by the kernel, by this program after the fact, or not at all."""
WATCHED: Mapping[Limit, Enforcement] = {"disk": "watched", "inodes": "watched"}
"""Limits that no engine enforces, because the run's process measures them."""


@dataclass(frozen=True, kw_only=True)
class EngineFeatures:
    """Capabilities of an engine on this machine."""

    overlay: bool
    """Whether a worktree can be the read-only lower layer of an overlay file system."""
    runtimes: tuple[str, ...]
    cpus: int
    memory: int
    """Memory of the machine in bytes."""
    version: str
    """Name and version of the engine, for users and records."""
    default_runtime: str = ""
    """OCI runtime of containers for which none is named, if it is not known to use the machine's
    kernel; else empty.
    """
    seccomp: bool = False
    """Whether the engine can filter system calls with a custom seccomp profile."""
    transfer: Literal["mounts", "streams"] = "mounts"
    """How files get into containers: mounted from this machine, or sent to the engine's volumes."""
    ports: bool = True
    """Whether published ports can be reached at 127.0.0.1 of this machine."""
    networks: bool = True
    """Whether each container can have a network of its own: for hosts or a credential broker.
    Otherwise, all steps of a place have one network, `none` or `open`.
    """
    addresses: bool = False
    """Whether places have addresses of their own (`AddressedPlace`), so that workers reach a
    credential broker without a network that is created for it.
    """
    knows_images: bool = True
    """Whether the engine knows the ports that images expose."""
    limits_services: bool = True
    """Whether the engine limits how many processes a service has."""
    open_network: bool = True
    """Whether the engine can close this machine to containers that have an open network."""
    gateways: bool = False
    """Whether the engine can confine a container to the hosts of an allow-list."""
    id: str = ""
    """Identifier of the engine, which no other engine has; empty if the engine has none."""
    address: str = ""
    """Where other processes reach the engine, without passwords; empty if they do not need it."""
    fingerprint: str = ""
    """Differs for another engine, machine, version or configuration: what was found out about an
    engine holds as long as this is the same. Empty if nothing may be remembered.
    """
    enforced: Mapping[Limit, Enforcement] = field(default_factory=dict)
    """How each limit is enforced, as containers showed; limits that were not tested are missing. An
    engine that fills this in itself is not tested.
    """

    @property
    def unenforced(self) -> tuple[Limit, ...]:
        """Return the limits that the engine accepts but does not enforce."""
        return tuple(limit for limit, how in self.enforced.items() if how == "no")
