"""Short names of branches: which other refs git may take them for."""

from orchestrator.base.text.split_lines import split_lines

_HEADS = "refs/heads/"
_PLACES = (_HEADS, "refs/tags/", "refs/remotes/", "refs/")
_DEFAULT = "architect/parallel-"


def other_meanings(branch: str) -> tuple[str, ...]:
    """Return the refs for which git may take the short name of a branch."""
    places = (f"{place}{branch}" for place in _PLACES if place != _HEADS)
    return (*places, f"refs/remotes/{branch}/HEAD")


def numbers_in_refs(listed: str) -> frozenset[int]:
    """Return the numbers of workers whose default branch exists or would be ambiguous.

    Args:
        listed: The names of all refs, one per line. Their case is ignored, as file systems may do.
    """
    prefixes = tuple(f"{place}{_DEFAULT}" for place in _PLACES)
    refs = (ref for ref in split_lines(listed.lower()) if ref.startswith(prefixes))
    # A branch `architect/parallel-1/x` also blocks the name `architect/parallel-1`.
    suffixes = (ref.partition(_DEFAULT)[2].partition("/")[0] for ref in refs)
    return frozenset(int(suffix) for suffix in suffixes if suffix.isdecimal())
