"""The end of an attempt after which another attempt follows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryLater:
    """An attempt ended, and another one will follow: a retry, or the next turn."""

    delay: float
    """Seconds until the next attempt."""
    refused: bool = False
    """Whether the provider refused requests; otherwise the next attempt counts as a retry."""
    resets_in: float | None = None
    """Seconds until the provider accepts requests again, as it reported; None if unknown."""
    next_turn: bool = False
    """Whether the next attempt begins another turn, with settings and a budget of its own."""
