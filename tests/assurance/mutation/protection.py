"""A protection: how to remove it, and the tests that should fail then."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.assurance.mutation.marks import files_of_marks, without
from tests.assurance.mutation.ways import AmbiguousError, Way

Row = tuple[str, Way] | tuple[str, Way, str]


@dataclass(frozen=True)
class Protection:
    """A protection of the package, which can be removed."""

    name: str
    way: Way
    tests: tuple[str, ...]
    """Arguments for pytest, tried one after the other until one fails."""
    why_not: str = ""
    """Reason why no test can notice that the protection is missing."""

    @property
    def mark(self) -> str:
        """The name of its mark in the package."""
        return self.way.at or mark_of(self.name)

    def file(self, root: Path) -> Path:
        """Return the file of a checkout with the protection.

        Raises:
            AmbiguousError: There is not exactly one mark.
        """
        places = files_of_marks(root).get(self.mark, [])
        if len(places) != 1:
            raise AmbiguousError(f"{len(places)} lines are `# protection: {self.mark}`")
        return root / places[0]

    def remove(self, root: Path) -> tuple[Path, str]:
        """Return the file of a checkout with the protection, and its text without it.

        Raises:
            AmbiguousError: There is not exactly one mark, or the way does not fit its statement.
        """
        path = self.file(root)
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
