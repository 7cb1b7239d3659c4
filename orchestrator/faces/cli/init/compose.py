"""Convert services of a compose file to services of workers.

A service's settings that reach outside of its container are not converted: files and devices of
this machine, privileges, networks.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.faces.cli.init.project_tree import Tree

COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_MOST = 20
_LONGEST = 2000
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_PLAIN_USE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<way>:?[-?+])?(?P<word>.*)", re.DOTALL)
_DEEPEST = 10
"""Most variables within each other's defaults."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_CONVERTED = frozenset({"image", "environment", "healthcheck", "ports", "expose"})
_IGNORED = frozenset({"restart", "container_name", "labels", "depends_on", "init"})
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
    if raw.get("profiles"):
        raise _NotConvertibleError("starts only if one of its profiles is asked for")
    if "extends" in raw and not raw.get("image"):
        raise _NotConvertibleError("has the image of a service that it extends")
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

    return _interpolated(str(raw)[:_LONGEST])


def _interpolated(text: str, depth: int = 0) -> str:
    """Return a text with compose's variables replaced by what they are if none of them is set.

    Raises:
        _NotConvertibleError: A variable has no default, must be set, or cannot be read.
    """
    done, place = "", 0
    while (start := text.find("$", place)) >= 0:
        done += text[place:start]
        follows = text[start + 1 : start + 2]
        if follows == "$":
            done, place = done + "$", start + 2
            continue
        if follows != "{":
            bare = _PLAIN_USE.match(text, start + 1)
            raise _NotConvertibleError(f"`{bare[0] if bare else text[start : start + 20]}`")
        end = _end_of_braces(text, start)
        braced = _BRACED.fullmatch(text[start + 2 : end]) if end else None
        if end is None or braced is None or depth > _DEEPEST:
            raise _NotConvertibleError(f"`{text[start : start + 20]}`")
        way, word = (braced["way"] or "")[-1:], braced["word"]
        # `${X:?message}` must be set, and `${X+other}` is empty if it is not.
        if way not in ("-", "+") or (way == "" and word):
            raise _NotConvertibleError(f"`{braced['name']}`")
        done += _interpolated(word, depth + 1) if way == "-" else ""
        place = end + 1
    return done + text[place:]


def _end_of_braces(text: str, start: int) -> int | None:
    """Return where the braces end that begin behind a `$`; None if they are not closed."""
    level = 0
    for place in range(start + 1, len(text)):
        if text[place] == "{" and text[place - 1] == "$":
            level += 1
        elif text[place] == "}":
            level -= 1
            if level == 0:
                return place
    return None


def _ports(raw: Mapping[str, object]) -> Iterator[int]:
    """Yield the ports that a service listens on in its container."""
    for key in ("ports", "expose"):
        listed = raw.get(key)
        for item in listed if isinstance(listed, list) else []:
            with suppress(_NotConvertibleError):
                item = item if isinstance(item, dict) else _fill_in(item)
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
