"""Kinds of merge conflicts, from the names that git has for them."""

from collections.abc import Iterable
from typing import Literal

Kind = Literal["clean", "text", "mode", "rename", "delete", "submodule", "binary", "unknown"]
"""Whether two commits can be merged, and if not, why not."""
_KINDS: tuple[tuple[str, Kind], ...] = (
    ("submodule", "submodule"),
    ("rename", "rename"),
    ("delete", "delete"),
    ("file/directory", "mode"),
    ("modes", "mode"),
    ("binary", "binary"),
)
"""A part of git's name and the kind, the gravest first."""


def kind_of(names: Iterable[str]) -> Kind:
    """Return the gravest kind of the conflicts that git names, such as `modify/delete`."""
    found = [*names]
    for part, kind in _KINDS:
        if any(part in name for name in found):
            return kind
    return "text"
