"""What a protection is here: a patch that takes it away, and the tests that should notice."""

from collections.abc import Iterator
from dataclasses import dataclass

_PACKAGE = "orchestrator/"


@dataclass(frozen=True)
class Protection:
    """Something that is taken away to see whether anything notices."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Arguments for pytest, tried one after the other until one fails."""
    why_not: str = ""
    """Why nothing can be expected to notice."""


def patches(
    path: str, tests: tuple[str, ...], *rows: tuple[str, str, str] | tuple[str, str, str, str]
) -> Iterator[Protection]:
    """Give the protections of one file: name, old text, new text, and why no test can tell."""
    for name, old, new, *why in rows:
        yield Protection(name, _PACKAGE + path, old, new, tests, *why)
