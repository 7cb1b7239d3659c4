"""Kinds of merge conflicts, derived from git's own names for conflicts."""

from collections.abc import Iterable
from typing import Literal

Kind = Literal[
    "clean", "text", "mode", "rename", "delete", "submodule", "binary", "semantic", "unknown"
]
"""Whether two commits can be merged: `clean`, the kind of conflict, or `unknown`. `semantic` means
that git can merge the commits, but checks that pass on each commit fail on the merge.
"""
_KINDS: tuple[tuple[str, Kind], ...] = (
    ("submodule", "submodule"),
    ("rename", "rename"),
    ("delete", "delete"),
    ("file/directory", "mode"),
    ("modes", "mode"),
    ("binary", "binary"),
)
"""Pairs of a part of git's name and a kind of conflict, the most serious first."""


def kind_of(names: Iterable[str]) -> Kind:
    """Return the most serious kind of the conflicts that git named, such as `modify/delete`."""
    found = [*names]
    for part, kind in _KINDS:
        if any(part in name for name in found):
            return kind
    return "text"
