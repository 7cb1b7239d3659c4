"""Suggest the name that was probably meant."""

from collections.abc import Sequence
from difflib import get_close_matches


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """Name what may be meant, if anything may be."""
    close = get_close_matches(text, known, n=1, cutoff=0.6)
    return f", did you mean `{close[0]}`?" if close else ""
