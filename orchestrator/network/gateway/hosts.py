"""Parse the entries of an allow-list: `HOST[:PORT]`, `*.DOMAIN`, `http://HOST`, `HOST=NETWORK`."""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.network.gateway.allowed_host import DOCKER_HOST, AllowedHost

MOST_HOSTS = 200
"""Maximum number of entries in an allow-list."""
MOST_PORTS = 10
"""Maximum number of different ports in an allow-list."""
_LONGEST_NAMES = 10_000
"""Maximum number of characters of all names together: the gateway's configuration is passed as one
variable of at most 128 KiB.
"""
# protection: allow-list-cannot-open-loopback
# protection: allow-list-cannot-open-metadata-services
UNREACHABLE = (
    "0.0.0.0/8", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
"""Networks that no entry of an allow-list can open: loopback, link-local (with metadata services),
multicast.
"""
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# A last label that begins with a letter, so that no notation of an IPv4 address is a name.
# protection: addresses-are-not-accepted-as-host-names
# protection: wildcard-requires-domain
HOST_NAME = rf"(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?"
"""Pattern of the full name of a host, in lower case: for entries of a list, and for the names that
workers send.
"""
LONGEST_NAME = 253
_NAME = re.compile(HOST_NAME)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LAST_PORT = 65_535
_SCHEMES = {"http": 80, "https": 443}
_NAME_SERVER = 53
_LARGEST = 8
"""Minimum prefix length of a network that an entry of an allow-list can open."""
_HINT = (
    "use the full name of a host or `*.DOMAIN`, with or without `:PORT`: `--allow a.example.net`, "
    "`--allow '*.example.com:8443'`, `--allow http://mirror.example.com`"
)


_PUBLIC_HTTP = AllowedHost(name="all public hosts", port=80, plain=True)
_PUBLIC_TLS = AllowedHost(name="all public hosts")
"""Entry for TLS to all public hosts, which the network setting `learn` adds together with
`_PUBLIC_HTTP`. No other entry may use another protocol at the ports of these two entries.
"""


def check_hosts(hosts: Iterable[AllowedHost], *, learn: bool = False) -> tuple[AllowedHost, ...]:
    """Return the entries without duplicates; check that one gateway can serve all of them.

    Args:
        hosts: The entries of the list.
        learn: Whether the gateway also forwards to all public hosts, at ports 80 and 443.

    Raises:
        ConfigError: A port should speak HTTP for one host and TLS for another, or the list is too
            long.
    """
    found = tuple(dict.fromkeys(hosts))
    if len(found) > MOST_HOSTS or sum(len(host.name) for host in found) > _LONGEST_NAMES:
        raise ConfigError(
            f"the list of allowed hosts has more than {MOST_HOSTS} entries, or more than "
            f"{_LONGEST_NAMES} characters",
            key="allow.too-long",
        )
    if len({host.port for host in found}) > MOST_PORTS:
        raise ConfigError(
            f"the list of allowed hosts has more than {MOST_PORTS} different ports",
            key="allow.too-many-ports",
        )
    public = (_PUBLIC_HTTP, _PUBLIC_TLS) if learn else ()
    plain = {host.port: host.name for host in (*found, *public) if host.plain}
    for host in (*found, *public):
        if not host.plain and host.port in plain:
            raise ConfigError(
                f"port {host.port} cannot speak HTTP for `{plain[host.port]}` and TLS for "
                f"`{host.name}`",
                key="allow.protocol",
                hint="an entry `http://HOST:PORT` means HTTP; `HOST:PORT` means TLS, except for "
                "port 80",
            )
    return found


def parse_host(entry: str) -> AllowedHost:
    """Parse one entry of an allow-list.

    Raises:
        ConfigError: The entry is invalid.
    """
    if "@" in entry:
        # What stands before it may be a password.
        raise _invalid(entry.rpartition("@")[2], "a user or password must not precede the name")
    place, equals, network = entry.partition("=")
    scheme, separator, rest = place.rpartition("://")
    if separator and scheme not in _SCHEMES:
        raise _invalid(entry, f"`{scheme}` is neither `http` nor `https`")
    host, colon, port_text = rest.partition(":")
    port = _port(entry, port_text) if colon else _SCHEMES.get(scheme, 443)
    below = host.startswith("*.")
    try:
        name = host.removeprefix("*.").removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise _invalid(entry, "the name is not the full name of a host")
    if name == DOCKER_HOST and (below or equals):
        raise _invalid(entry, f"`{DOCKER_HOST}` stands for this machine alone")
    return AllowedHost(
        name=name,
        below=below,
        port=port,
        plain=scheme == "http" or (not scheme and port == _SCHEMES["http"]),
        network=_network(entry, network) if equals else None,
    )


def host_of_url(url: str) -> AllowedHost | None:
    """Return the allow-list entry for a model API's base URL; None if the URL does not use HTTP.

    Raises:
        ConfigError: The URL has an IP address in place of a host name.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        return None
    try:
        return parse_host(f"{parts.scheme}://{parts.hostname}:{port or _SCHEMES[parts.scheme]}")
    except ConfigError as error:
        # The whole URL may contain a key.
        raise ConfigError(
            f"the host `{one_line(parts.hostname, limit=100)}` in the base URL of the model's API "
            "is not a full host name: a worker's gateway forwards connections to named hosts only",
            key="api-base.host",
            hint=f"use the full name of the host; `{DOCKER_HOST}` is this machine",
        ) from error


def _port(entry: str, text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > _LAST_PORT:
        raise _invalid(entry, f"invalid port: `{text}`")
    # protection: allow-list-cannot-use-port-53
    if int(text) == _NAME_SERVER:
        raise _invalid(entry, "port 53 belongs to the gateway's own name server")
    return int(text)


def _network(entry: str, text: str) -> str:
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise _invalid(entry, f"invalid IPv4 network: `{text}`") from error
    if network.prefixlen < _LARGEST:
        raise _invalid(entry, f"the network must not be larger than a /{_LARGEST}")
    if any(network.overlaps(ipaddress.IPv4Network(closed)) for closed in UNREACHABLE):
        raise _invalid(entry, f"`{text}` cannot be opened: it is loopback, link-local or multicast")
    return str(network)


def _invalid(entry: str, why: str) -> ConfigError:
    return ConfigError(f"`--allow`: `{entry}`: {why}", key="allow.invalid", hint=_HINT)
