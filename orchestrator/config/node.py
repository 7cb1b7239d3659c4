"""Values of a parsed configuration file, with their line numbers."""

from dataclasses import dataclass, field

MAX_DEPTH = 20
SPELLED = (bool, int, float)
"""Types of values whose source text a `Node` keeps."""


class DocumentError(Exception):
    """A file cannot be read or parsed. The message starts with `FILE` or `FILE:LINE`."""


@dataclass(frozen=True)
class Node:
    """A parsed value with its line number. The members of mappings and lists are nodes too."""

    value: object
    line: int | None
    written: str | None = field(default=None, compare=False)
    """Source text of a number or boolean, because `1.10` must stay `1.10` and not become 1.1."""

    @property
    def as_text(self) -> "Node":
        """Return a number or boolean as written in the file, and any other value unchanged."""
        # protection: numbers-keep-their-spelling
        return self if self.written is None else Node(self.written, self.line)

    def plain(self) -> object:
        """Return the value, and all values inside it, without line numbers."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value
