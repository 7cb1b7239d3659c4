"""Named sets of hosts in allow-lists, such as `--allow @pip` or `--allow @corp=10.0.0.0/8`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.network.gateway.allowed_host import AllowedHost
from orchestrator.network.gateway.hosts import HOST_NAME, parse_host
from orchestrator.network.gateway.package_managers import TOOLS, FoundUrl, Machine, web_url

SIGN = "@"
GIT = "git"
"""Name of the set with the hosts of the repository's git remotes."""
_HINTS: Mapping[str, str] = {
    GIT: "only remotes with `https://` or `http://` can pass a gateway: see `git remote -v`",
    "cargo": "the index is known after cargo was used here, or from `[registries]` in its "
    "configuration",
}
_UNREADABLE = "a URL that cannot be read"
"""What stands for a URL whose parts are not clear: any of them may be a password."""


@dataclass(frozen=True)
class SetMember:
    """A host in a named set for allow-lists, and the file or variable where it was found."""

    entry: str
    """The host, written as an entry of an allow-list."""
    source: str
    """File or variable in which the host was found."""


@dataclass(frozen=True, kw_only=True)
class HostSets:
    """The sets that an allow-list may name."""

    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The user's own sets by name; they take precedence over built-in sets."""
    machine: Machine = field(default_factory=Machine)
    remotes: Callable[[], Iterable[FoundUrl]] = tuple
    """Function that returns the URLs of the repository's git remotes."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all sets."""
        return tuple(dict.fromkeys((*self.own, *TOOLS, GIT)))

    def members(self, name: str) -> list[SetMember]:
        """Return the hosts of a set, and where each host was found; the set may be empty.

        Raises:
            ConfigError: There is no such set.
        """
        if name in self.own:
            return [SetMember(entry, "allow_sets") for entry in self.own[name]]
        if name not in self.names():
            known = ", ".join(f"`{SIGN}{set_name}`" for set_name in self.names())
            raise ConfigError(
                f"`--allow`: there is no set `{SIGN}{one_line(name, limit=60)}`",
                key="allow-set.unknown",
                hint=f"sets: {known}; `allow_sets` in a configuration file defines others",
            )
        found = self.remotes() if name == GIT else TOOLS[name](self.machine)
        members = {_entry(url): SetMember(_entry(url), place.source)
                   for place in reversed(list(found)) if (url := web_url(place.url))}  # fmt: skip
        return list(reversed(members.values()))

    def hosts(self, entries: Iterable[str]) -> Iterator[AllowedHost]:
        """Yield the hosts of an allow-list, with each named set replaced by its hosts.

        Raises:
            ConfigError: An entry is invalid, or a set has no hosts.
        """
        for entry in entries:
            if not entry.startswith(SIGN):
                yield parse_host(entry)
                continue
            name, equals, network = entry.removeprefix(SIGN).partition("=")
            members = self.members(name)
            if not members:
                raise ConfigError(
                    f"`--allow`: the set of hosts `{SIGN}{name}` is empty on this machine",
                    key="allow-set.empty",
                    hint=_HINTS.get(name, "configure its tool, or name each host: `--allow HOST`; "
                                          "`orchestrator network sets` shows all sets"),
                )  # fmt: skip
            for member in members:
                if member.entry.startswith(SIGN):
                    raise ConfigError(
                        f"`{SIGN}{name}`: a set cannot contain the set `{member.entry}`",
                        key="allow-set.nested",
                    )
                try:
                    yield parse_host(f"{member.entry}{equals}{network}")
                except ConfigError as error:
                    raise ConfigError(
                        f"`{SIGN}{name}`, from {member.source}: {error.message}",
                        key="allow-set.invalid",
                        hint="name the hosts that workers need in place of the set",
                    ) from error


def _entry(url: str) -> str:
    """Return a URL's host as an entry of an allow-list, without credentials in the URL."""
    try:
        parts = urlsplit(url)
        host, number = parts.hostname or "", parts.port
    except ValueError:
        return _UNREADABLE
    # A password with `/`, `?` or `#` ends what is parsed as the host.
    if "@" in parts.path + parts.query + parts.fragment and not re.fullmatch(HOST_NAME, host):
        return _UNREADABLE
    entry = host if number is None else f"{host}:{number}"
    return entry if parts.scheme == "https" else f"http://{entry}"
