"""The end of an attempt that another attempt follows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryLater:
    """An attempt failed; there will be another."""

    delay: float
    """Seconds until the next attempt."""
    refused: bool = False
    """Whether the provider refused requests; otherwise the attempt counts as a retry."""
    resets_in: float | None = None
    """Seconds until the provider accepts requests, as it reported; None if unknown."""
