"""Keeps a worker's network away from the machine, its networks and its neighbours.

A container of ours joins the network first, sets packet filter rules in its own network namespace,
and stays. The worker's container then shares that namespace: it is bound by the rules, and has no
capability to change them.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker

from orchestrator.engine.base import ROLE, ContainerSpec, Egress
from orchestrator.engine.docker.container import (
    DockerContainer,
    create_arguments,
    remove_container,
)
from orchestrator.engine.docker.errors import translated
from orchestrator.errors import EngineError
from orchestrator.sanitize import one_line

HOST = "host.docker.internal"
_READY = b"guarded"
_SCRIPT = f'printf %s "$RULES" | nft -f - && echo {_READY.decode()} && exec sleep infinity'
# RFC 6890: this network, private, shared, loopback, link-local (metadata services), benchmarking,
# multicast, reserved and broadcast.
_CLOSED = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
_RESOLV = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))


def start_guard(
    client: docker.APIClient, spec: ContainerSpec, egress: Egress, *, seccomp: str | None
) -> DockerContainer:
    """Start the container that holds a worker's network, and wait until its rules stand.

    Args:
        client: The daemon.
        spec: The worker's container.
        egress: What it may reach.
        seccomp: The profile of system calls; None where the daemon cannot filter them.

    Raises:
        PortTakenError: A host port of `spec.ports` is in use.
        EngineError: The rules could not be set.
    """
    guard = create(client, _guard_spec(client, spec, egress), seccomp=seccomp)
    try:
        guard.start()
        _await_ready(guard)
    except BaseException:
        guard.remove()
        raise
    return guard


def create(
    client: docker.APIClient, spec: ContainerSpec, *, seccomp: str | None
) -> DockerContainer:
    """Create a container and attach to it."""
    with translated("create the container"):
        created = client.create_container(**create_arguments(client, spec, seccomp=seccomp))
    try:
        return DockerContainer(client, created["Id"], ports=spec.ports)
    except BaseException:
        remove_container(client, created["Id"])
        raise


def _guard_spec(client: docker.APIClient, spec: ContainerSpec, egress: Egress) -> ContainerSpec:
    gateway = _gateway(client)
    return replace(
        spec,
        name=f"{spec.name}-network",
        image=egress.image,
        command=("sh", "-c", _SCRIPT),
        # Nothing of a worker runs here. Only root's capabilities take effect, and it has just one.
        user="0:0",
        capabilities=("NET_ADMIN",),
        workdir="/",
        labels={**spec.labels, ROLE: "guard"},
        env={"RULES": rules(egress, gateway=gateway)},
        extra_hosts={**spec.extra_hosts, HOST: gateway},
        egress=None,
        mounts=(),
        cpus=None,
        memory=64 * 1024**2,
        pids=16,
        runtime=None,
        kept_output=0,
    )


def _gateway(client: docker.APIClient) -> str:
    """Give the machine's own address on the default bridge."""
    with translated("inspect the default network"):
        settings: dict[str, Any] = client.inspect_network("bridge")["IPAM"]["Config"][0]
    first = next(ipaddress.ip_network(settings["Subnet"]).hosts())
    return str(settings.get("Gateway", first))


def _await_ready(guard: DockerContainer) -> None:
    said = b""
    for chunk in guard.logs():
        said += chunk.data
        if _READY in said:
            return
    reason = one_line(said.decode("utf-8", "replace"))
    raise EngineError(
        f"cannot close the worker's network: {reason}",
        hint="use `--network none`, or rebuild the base image: `orchestrator image build`",
    )


def rules(egress: Egress, *, gateway: str) -> str:
    """Write the rules as nft reads them."""
    lines = [
        'oifname "lo" accept',
        "ct state established,related accept",
        *(f"{_match(*place, gateway=gateway)} accept" for place in egress.allowed),
        *(f"ip daddr {server} {way} dport 53 accept" for server in _resolvers() for way in _WAYS),
        *(f"ip daddr {network} reject" for network in (*_CLOSED, *own_addresses())),
        "meta nfproto ipv6 reject",
    ]
    body = "\n".join(f"    {line}" for line in lines)
    hook = "type filter hook output priority 0; policy accept;"
    return f"table inet guard {{\n  chain output {{\n    {hook}\n{body}\n  }}\n}}\n"


_WAYS = ("udp", "tcp")


def _match(address: str, port: int | None, *, gateway: str) -> str:
    address = gateway if address == HOST else str(ipaddress.IPv4Network(address))
    return f"ip daddr {address}" + (f" tcp dport {port}" if port is not None else "")


def _resolvers() -> Iterator[str]:
    """Give the name servers that the engine's own resolver asks from inside the namespace."""
    lines = (line for path in _RESOLV if path.exists() for line in path.read_text().splitlines())
    found = {words[1] for line in lines if (words := line.split())[:1] == ["nameserver"]}
    for address in sorted(found):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if parsed.version == 4 and not parsed.is_loopback:
            yield address


def own_addresses(table: Path = Path("/proc/net/fib_trie")) -> list[str]:
    """Give the machine's own IPv4 addresses, public ones too (as the kernel lists them)."""
    found, address = set(), ""
    for line in table.read_text().splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and not address.startswith("127."):
            found.add(address)
    return sorted(found)
