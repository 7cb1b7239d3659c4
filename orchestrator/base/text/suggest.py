"""Suggest a known name for a name that may be misspelt."""

from collections.abc import Sequence
from difflib import get_close_matches

MOST_SUGGESTIONS = 200
"""Maximum number of suggestions for one file, as each requires a search in the known names."""
_MOST_KNOWN = 1000


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """Return a suggestion such as `, did you mean ...?`; empty if no known name is similar."""
    close = get_close_matches(text, known[:_MOST_KNOWN], n=1, cutoff=0.6)
    return f", did you mean `{close[0]}`?" if close else ""
