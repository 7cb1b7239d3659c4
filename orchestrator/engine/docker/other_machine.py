"""Ask a container in the network of the engine's machine what only that machine knows."""

import ipaddress
import re
from collections.abc import Mapping
from secrets import token_hex

import docker

from orchestrator.base.errors import EngineError
from orchestrator.base.text.split_lines import split_lines
from orchestrator.base.threads import unless_over
from orchestrator.engine.docker.dialect import Dialect
from orchestrator.engine.docker.firewall import create, gateway_of
from orchestrator.engine.docker.machine_network import MachineNetwork, parse
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import ROLE, for_a_moment
from orchestrator.engine.interface.spec import ContainerSpec

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_ASK = r"""
cd /proc/net && cat fib_trie && printf '\0' && cat route && printf '\0' && cat /etc/resolv.conf &&
printf '\0' && ls /sys/class/net
"""
_LARGEST = 1024**2
_MEMORY = 64 * 1024**2
_PIDS = 16
_PATIENCE = 60.0


def machine_of(
    client: docker.APIClient, labels: Mapping[str, str], *, dialect: Dialect
) -> MachineNetwork:
    """Return the addresses, routes and name servers of the engine's machine.

    Raises:
        EngineError: The container could not be started, or its answer cannot be read.
    """
    said = _run(client, ("sh", "-c", _ASK), labels, dialect=dialect)
    try:
        trie, routes, resolv, interfaces = said.split("\0")
        found = parse(gateway_of(client), trie, routes, resolv, interfaces)
    except (ValueError, LookupError) as error:
        raise EngineError(
            "cannot read the addresses of the engine's machine", key="machine.unreadable"
        ) from error
    if not found.addresses:
        raise EngineError("the engine's machine lists no address", key="machine.no-address")
    return found


def resolve_there(client: docker.APIClient, name: str, *, dialect: Dialect) -> list[str]:
    """Return the IPv4 addresses of a name, as the engine's machine resolves it.

    Raises:
        EngineError: The container could not be started.
        ValueError: The name is invalid, or has no address there.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(name)
    said = _run(client, ("getent", "ahostsv4", name), for_a_moment(), dialect=dialect)
    found = {str(ipaddress.IPv4Address(line.split()[0])) for line in split_lines(said) if line}
    if not found:
        raise ValueError(name)
    return sorted(found)


def _run(
    client: docker.APIClient,
    command: tuple[str, ...],
    labels: Mapping[str, str],
    *,
    dialect: Dialect,
) -> str:
    """Run a command in the network of the engine's machine, and return what it prints."""
    # No code of a worker runs here, and the container has no capability.
    spec = ContainerSpec(
        name=f"orchestrator-machine-{token_hex(6)}",
        image=BASE_IMAGE,
        command=command,
        user="65534:65534",
        workdir="/",
        labels={**for_a_moment(role="machine"), **labels, ROLE: "machine"},
        network="host",
        memory=_MEMORY,
        pids=_PIDS,
    )
    container = create(client, spec, dialect=dialect)
    try:
        container.start()
        said = b""
        with unless_over(_PATIENCE, container.close) as late:
            for chunk in container.logs():
                said += chunk.data if chunk.stream == "stdout" else b""
                if len(said) > _LARGEST:
                    raise EngineError(
                        "the engine's machine lists too many addresses", key="machine.too-long"
                    )
        if late.is_set():
            raise EngineError(
                f"the engine's machine did not list its addresses within {_PATIENCE:g} s",
                key="machine.timeout",
            )
        container.wait(_PATIENCE)
    finally:
        container.remove()
    return said.decode("utf-8", "replace")
