"""Find the types that an implementation of a protocol must import."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints


def types_of(protocol: type) -> set[str]:
    """Return the names of this project's types in a protocol's signatures and in their fields."""
    found: dict[str, type] = {}
    waiting = [protocol]
    while waiting:
        for kind in _mentioned(waiting.pop()):
            if kind.__name__ not in found:
                found[kind.__name__] = kind
                waiting.append(kind)
    return {*found} | {protocol.__name__}


def _mentioned(kind: type) -> Iterator[type]:
    if dataclasses.is_dataclass(kind):
        for hint in get_type_hints(kind).values():
            yield from _ours(hint)
    if getattr(kind, "_is_protocol", False):
        for _, member in inspect.getmembers(kind):
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and function.__module__.startswith("orchestrator"):
                for hint in get_type_hints(function).values():
                    yield from _ours(hint)


def _ours(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("orchestrator"):
        yield hint
    for part in get_args(hint):
        yield from _ours(part)
