"""Suggest a known name for a misspelt one."""

from collections.abc import Sequence
from difflib import get_close_matches


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """Return a suggestion such as `, did you mean ...?`; empty if no known name is similar."""
    close = get_close_matches(text, known, n=1, cutoff=0.6)
    return f", did you mean `{close[0]}`?" if close else ""
