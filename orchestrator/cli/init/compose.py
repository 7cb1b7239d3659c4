"""Convert services of a compose file to services of workers.

A service's settings that reach outside of its container are not converted: files and devices of
this machine, privileges, networks.
"""

import re
import shlex
from collections.abc import Iterator, Mapping

from orchestrator.cli.init.findings import FoundService
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


class _UnsetVariableError(Exception):
    """A value contains a variable that is not set and has no default."""


def services_of(tree: Tree, name: str) -> tuple[tuple[FoundService, ...], dict[str, str]]:
    """Return the services that can be converted, and the reasons why others cannot."""
    root = tree.document(name)
    listed = root["services"].plain() if "services" in root else None
    if not isinstance(listed, dict):
        return (), {}
    converted: dict[object, FoundService] = {}
    others: dict[str, str] = {}
    for service, raw in list(listed.items())[:_MOST]:
        reason = _refusal(service, raw)
        if reason is None:
            env, without = _environment(raw.get("environment"))
            values: dict[str, object] = {"image": _fill_in(raw["image"])}
            port = next(_ports(raw), None)
            health = _health(raw.get("healthcheck"))
            if port is not None:
                values["port"] = port
            if env:
                values["env"] = env
            if health:
                values["health"] = health
            left_out = sorted(str(key) for key in raw.keys() - _CONVERTED - _IGNORED)
            carried = FoundService(name=service, values=values, left_out=(*left_out, *without))
            other = converted.setdefault(carried.values.get("port", service), carried)
            if other is not carried:
                reason = f"uses the same port as `{other.name}`, with which it shares a network"
        if reason is not None:
            others[service] = reason
    return tuple(converted.values()), others


def _refusal(name: str, raw: object) -> str | None:
    if not isinstance(raw, dict):
        return "is not a mapping"
    if "build" in raw:
        return "is built from the project that workers change"
    if not _NAME.fullmatch(name) or name == "localhost":
        return "its name is not a lowercase host name"
    try:
        image = _fill_in(raw.get("image"))
    except _UnsetVariableError as error:
        return f"its image depends on {error}"
    return None if _IMAGE.fullmatch(image) else "has no image"


def _environment(raw: object) -> tuple[dict[str, str], list[str]]:
    """Return a service's variables, and the names of variables whose value is unknown."""
    pairs: list[tuple[str, object]] = []
    if isinstance(raw, dict):
        pairs = list(raw.items())
    elif isinstance(raw, list):
        parts = (str(item).partition("=") for item in raw)
        pairs = [(key, value if equals else None) for key, equals, value in parts]
    env, without = {}, []
    for key, value in pairs:
        if not _VARIABLE_NAME.fullmatch(key):
            continue
        try:
            env[key] = _fill_in(value)
        except _UnsetVariableError:
            without.append(key)
    return env, without


def _fill_in(raw: object) -> str:
    """Return a value as text, with variables replaced by their defaults."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if not isinstance(raw, (str, int, float)):
        raise _UnsetVariableError("an unknown value")

    def fill_in(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match["default"] is None:
            raise _UnsetVariableError(f"`{match['braced'] or match['bare']}`")
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
    test = raw.get("test") if isinstance(raw, dict) else None
    try:
        if isinstance(test, str):
            return _fill_in(test) or None
        match test:
            case ["CMD-SHELL", str(line)]:
                return _fill_in(line)
            case ["CMD", *words] if words:
                return shlex.join(_fill_in(word) for word in words)
    except _UnsetVariableError:
        return None
    return None
