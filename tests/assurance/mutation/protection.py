"""A protection: how to remove it, and the tests that should fail then."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.assurance.mutation.marks import ROOT, files_of_marks, without
from tests.assurance.mutation.ways import Way

_PACKAGE = "orchestrator/"
Row = tuple[str, Way] | tuple[str, Way, str]


@dataclass(frozen=True)
class Patch:
    """Two texts of a file: the old one occurs once, and becomes the new one."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Protection:
    """A protection of the package, which can be removed."""

    name: str
    way: Way | Patch
    tests: tuple[str, ...]
    """Arguments for pytest, tried one after the other until one fails."""
    why_not: str = ""
    """Reason why no test can notice that the protection is missing."""

    @property
    def mark(self) -> str:
        """The name of its mark in the package; empty for a patch."""
        return "" if isinstance(self.way, Patch) else self.way.at or mark_of(self.name)

    def remove(self, root: Path) -> tuple[Path, str]:
        """Return the file of a checkout with the protection, and its text without it."""
        if isinstance(self.way, Patch):
            path = root / self.way.path
            text = path.read_text(encoding="utf-8")
            assert text.count(self.way.old) == 1, "the code has changed: adapt the patch"
            return path, text.replace(self.way.old, self.way.new)
        (place,) = files_of_marks(root)[self.mark]
        path = root / place
        return path, without(path.read_text(encoding="utf-8"), self.mark, self.way)


def mark_of(name: str) -> str:
    """Return the mark of a protection: its name in lower case without articles, with hyphens."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower().replace("'", "")).split()
    return "-".join(word for word in words if word not in {"a", "an", "the"})


def marked(tests: tuple[str, ...], *rows: Row, at: str = "") -> Iterator[Protection]:
    """Yield protections from rows of name, way to remove it, and why no test can tell.

    Args:
        tests: Tests that notice.
        rows: The protections.
        at: The mark of all rows; by default, each row has its own.
    """
    for name, way, *why in rows:
        yield Protection(name, replace(way, at=way.at or at), tests, *why)


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
        yield Protection(name, Patch(_PACKAGE + place, old, new), tests, *why)
