"""Fenced code blocks and links of a documentation page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>.*)$")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Page and line of the block, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """List the pages of the documentation, relative to the project."""
    found = [path for place in ("docs", "skills") for path in (ROOT / place).rglob("*.md")]
    found += ROOT.glob("*.md")
    return sorted(str(path.relative_to(ROOT)) for path in found if "sample" not in path.parts)


def read_page(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """List a page's code blocks in order."""
    found: list[Block] = []
    opened: tuple[int, re.Match[str]] | None = None
    lines: list[str] = []
    for number, line in enumerate(read_page(page).splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = (number, fence), []
        elif opened and fence:
            assert not fence["language"], f"{page}:{number}: a block opens inside a block"
            found.append(Block(page, opened[0], opened[1]["language"], "\n".join(lines)))
            opened = None
        elif opened:
            lines.append(line.removeprefix(opened[1]["indent"]))
    assert opened is None, f"{page}: a block is never closed"
    return found


def links(page: str) -> Iterator[str]:
    """Return the targets of a page's links outside of code blocks."""
    text = re.sub(r"^ *```.*?^ *```$", "", read_page(page), flags=re.M | re.S)
    for match in _LINK.finditer(text):
        yield match["target"]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings."""
    text = re.sub(r"^ *```.*?^ *```$", "", read_page(page), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
