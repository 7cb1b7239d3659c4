"""A protection: a patch that removes it, and the tests that should fail then."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
_PACKAGE = "orchestrator/"


@dataclass(frozen=True)
class Protection:
    """A protection of the package, which can be removed by a patch."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Arguments for pytest, tried one after the other until one fails."""
    why_not: str = ""
    """Reason why no test can notice that the protection is missing."""


def patches(
    path: str, tests: tuple[str, ...], *rows: tuple[str, str, str] | tuple[str, str, str, str]
) -> Iterator[Protection]:
    """Yield protections from rows of name, old text, new text, and why no test can tell.

    Args:
        path: A file of the package, or several separated by spaces: each row is about the first of
            them that contains its old text.
        tests: Tests that notice.
        rows: The protections.
    """
    first, *others = path.split()
    texts = {other: (ROOT / _PACKAGE / other).read_text() for other in others}
    for name, old, new, *why in rows:
        place = next((other for other, text in texts.items() if old in text), first)
        yield Protection(name, _PACKAGE + place, old, new, tests, *why)
