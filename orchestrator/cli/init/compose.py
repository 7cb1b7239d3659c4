"""Convert services of a compose file to services of workers.

A service's settings that reach outside of its container are not converted: files and devices of
this machine, privileges, networks.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.cli.init.project_tree import Tree

COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_MOST = 20
_LONGEST = 2000
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_VARIABLE = re.compile(r"\$\$|\$\{(?P<braced>\w+)(?::?-(?P<default>[^{}]*))?\}|\$(?P<bare>\w+)")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_CONVERTED = frozenset({"image", "environment", "healthcheck", "ports", "expose"})
_IGNORED = frozenset({"restart", "container_name", "profiles", "labels", "depends_on", "init"})
"""Keys of a compose service that have no meaning for a service that only one worker uses."""


@dataclass(frozen=True, kw_only=True)
class FoundService:
    """A service of a compose file that each worker can run itself. All texts are untrusted."""

    name: str
    values: Mapping[str, object]
    """Values for `services.NAME` in the configuration."""
    left_out: tuple[str, ...]
    """Keys that were not converted."""


class _NotConvertibleError(Exception):
    """A service or value cannot be converted, with the reason."""


def services_of(tree: Tree, name: str) -> tuple[tuple[FoundService, ...], dict[str, str]]:
    """Return the services that can be converted, and the reasons why others cannot."""
    root = tree.document(name)
    listed = root["services"].plain() if "services" in root else None
    converted: dict[object, FoundService] = {}
    others: dict[str, str] = {}
    for service, raw in list(listed.items())[:_MOST] if isinstance(listed, dict) else []:
        try:
            found = _convert(service, raw)
        except _NotConvertibleError as error:
            others[service] = str(error)
            continue
        other = converted.setdefault(found.values.get("port", service), found)
        if other is not found:
            others[service] = (
                f"uses the same port as `{other.name}`, with which it shares a network"
            )
    return tuple(converted.values()), others


def _convert(name: str, raw: object) -> FoundService:
    if not isinstance(raw, dict):
        raise _NotConvertibleError("is not a mapping")
    if "build" in raw:
        raise _NotConvertibleError("is built from the project that workers change")
    if not _NAME.fullmatch(name) or name == "localhost":
        raise _NotConvertibleError("its name is not a lowercase host name")
    try:
        image = _fill_in(raw.get("image"))
    except _NotConvertibleError as error:
        raise _NotConvertibleError(f"its image depends on {error}") from error
    if not _IMAGE.fullmatch(image):
        raise _NotConvertibleError("has no image")
    env, without = _environment(raw.get("environment"))
    values = {
        "image": image,
        "port": next(_ports(raw), None),
        "env": env,
        "health": _health(raw.get("healthcheck")),
    }
    left_out = sorted(str(key) for key in raw.keys() - _CONVERTED - _IGNORED)
    return FoundService(
        name=name,
        values={key: value for key, value in values.items() if value},
        left_out=(*left_out, *without),
    )


def _environment(raw: object) -> tuple[dict[str, str], list[str]]:
    """Return a service's variables, and the names of variables whose value is unknown."""
    pairs: list[tuple[str, object]] = list(raw.items()) if isinstance(raw, dict) else []
    if isinstance(raw, list):
        parts = (str(item).partition("=") for item in raw)
        pairs = [(key, value if equals else None) for key, equals, value in parts]
    env, without = {}, []
    for key, value in pairs:
        if not _VARIABLE_NAME.fullmatch(key):
            continue
        try:
            env[key] = _fill_in(value)
        except _NotConvertibleError:
            without.append(key)
    return env, without


def _fill_in(raw: object) -> str:
    """Return a value as text, with variables replaced by their defaults."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if not isinstance(raw, (str, int, float)):
        raise _NotConvertibleError("an unknown value")

    def fill_in(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match["default"] is None:
            raise _NotConvertibleError(f"`{match['braced'] or match['bare']}`")
        return match["default"]

    return _VARIABLE.sub(fill_in, str(raw)[:_LONGEST])


def _ports(raw: Mapping[str, object]) -> Iterator[int]:
    """Yield the ports that a service listens on in its container."""
    for key in ("ports", "expose"):
        listed = raw.get(key)
        for item in listed if isinstance(listed, list) else []:
            target = item.get("target") if isinstance(item, dict) else str(item).rpartition(":")[2]
            number = str(target).partition("/")[0]
            if re.fullmatch("[0-9]{1,5}", number) and 0 < int(number) < 65536:
                yield int(number)


def _health(raw: object) -> str | None:
    """Return the shell command that checks whether a service is ready; None if unknown."""
    try:
        match raw.get("test") if isinstance(raw, dict) else None:
            case str(line) | ["CMD-SHELL", str(line)]:
                return _fill_in(line)
            case ["CMD", *words] if words:
                return shlex.join(map(_fill_in, words))
    except _NotConvertibleError:
        pass
    return None
