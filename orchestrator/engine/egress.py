"""What a worker on the network may reach although it is private: told by the user, or implied."""

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from orchestrator.errors import ConfigError, UnsupportedError

HOST = "host.docker.internal"
"""The name for this machine, inside a container."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_PORTS = {"http": 80, "https": 443}
_BASE_URLS = ("_API_BASE", "_BASE_URL")
"""How the variables end in which an agent program takes the base URL of a model's API."""

# Known to use the kernel's own network stack. Others (gVisor, Kata) may have one of their own,
# past which packet filter rules in the container's network namespace do nothing.
_FILTERED = frozenset({"runc", "crun", "youki", "nvidia", "io.containerd.runc.v2"})

Destination = tuple[str, int | None]


def check_runtime(runtime: str | None) -> None:
    """Refuse a network that could not be closed to the machine.

    Raises:
        UnsupportedError: The runtime may bring a network stack that no rule of ours reaches.
    """
    if not _is_filtered(runtime):
        raise UnsupportedError(
            f"with runtime `{runtime}` the network cannot be closed to this machine",
            hint="use `--network none` with it; `orchestrator doctor` lists the engine's runtimes",
        )


def _is_filtered(runtime: str | None) -> bool:
    return runtime is None or runtime in _FILTERED


def check_shared_network(runtime: str | None) -> None:
    """Refuse services where containers could not share a network.

    Raises:
        UnsupportedError: Each would have a network stack of its own.
    """
    if not _is_filtered(runtime):
        raise UnsupportedError(
            f"with runtime `{runtime}` a worker cannot share a network with its services",
            hint="leave the runtime out, or the services",
        )


def base_urls(names: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the base URLs that an agent program will use.

    Args:
        names: The variables that the program is known to read.
        environment: What its container will have; other variables open nothing.
    """
    found = (name for name in names if name.endswith(_BASE_URLS))
    yield from (environment[name] for name in found if name in environment)


def allowed_destinations(wishes: Iterable[str], urls: Iterable[str]) -> tuple[Destination, ...]:
    """Return addresses and ports that stay reachable.

    Args:
        wishes: `HOST[:PORT]` as `--allow` takes them.
        urls: Where the model's API is, by `http` or `https`: each opens one port. What cannot
            be resolved is left to the agent to tell.

    Raises:
        ConfigError: A wish is no host, or its name cannot be resolved.
    """
    found: dict[Destination, None] = {}
    for wish in wishes:
        found |= dict.fromkeys(_wanted(wish))
    for url in urls:
        found |= dict.fromkeys(_implied(url))
    return tuple(found)


def _wanted(wish: str) -> list[Destination]:
    host, port = _split(wish)
    try:
        return [(address, port) for address in _addresses(host)]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"`--allow`: cannot resolve `{host}`",
            hint="give a name, an IPv4 address or network, or `host.docker.internal`, "
            "each with or without `:PORT`",
        ) from error


def _split(wish: str) -> tuple[str, int | None]:
    host, colon, port = wish.rpartition(":")
    if not colon:
        return wish, None
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"`--allow`: no such port: `{port}`", hint="as in `--allow HOST:8080`")
    return host, int(port)


def _addresses(host: str) -> list[str]:
    if host == HOST:
        return [HOST]
    try:
        return [str(ipaddress.IPv4Network(host, strict=False))]
    except ValueError:
        if not _NAME.fullmatch(host):
            raise
    answers = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    return sorted({str(answer[4][0]) for answer in answers})


def _implied(url: str) -> list[Destination]:
    try:
        parts = urlsplit(url)
        # Another scheme is no model's API.
        usual = _PORTS.get(parts.scheme, 0)
        port = parts.port if usual and parts.port is not None else usual
        return [(address, port) for address in _addresses(parts.hostname or "")] if port else []
    except (OSError, ValueError):
        return []
