"""Types of numbers and texts in an agent's report; implausible values count as missing."""

import signal
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from orchestrator.base.text.sanitize import ELLIPSIS, output_line, output_lines

_MAX_COST: Final = 1e6
"""Highest cost in USD that is accepted, so that no sum of claimed costs can become infinite."""
_MAX_COUNT: Final = 10**12
_MAX_TEXT: Final = 4096
MOST_SAID: Final = 4000
"""Maximum number of characters of an agent's final message in a result."""


def _cost(value: object) -> float | None:
    # A bool is an int in Python, but `"cost": true` is not a cost. NaN fails the comparison.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_COST else None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= _MAX_COUNT else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _words(value: object) -> str | None:
    return value if isinstance(value, str) else None


Cost = Annotated[float | None, BeforeValidator(_cost)]
Count = Annotated[int | None, BeforeValidator(_count)]
Flag = Annotated[bool | None, BeforeValidator(_flag)]
Text = Annotated[str | None, BeforeValidator(_text)]
Words = Annotated[str | None, BeforeValidator(_words)]
"""Type of a text that has no own length limit, because the size of the whole report is limited."""


class Claims(BaseModel):
    """Base class of parsed reports: declared fields are validated, all others are ignored.

    A part of a report may be of a class derived from it, too. What is no mapping counts as an
    empty one, and a field that is missing counts as null.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_gaps(cls, value: object) -> object:
        if isinstance(value, cls):
            return value
        missing = {info.alias or name: None for name, info in cls.model_fields.items()
                   if info.is_required()}  # fmt: skip
        return {**missing, **fields(value)}


def fields(value: object) -> Mapping[str, object]:
    """Return a value that is a mapping of names to values; an empty mapping for any other value."""
    return value if isinstance(value, dict) else {}


def as_line(text: str | None) -> str | None:
    """Return a text from an agent as one line that is safe to print; None if the text is blank."""
    return output_line(" ".join((text or "")[:_MAX_TEXT].split())) or None


def as_summary(text: str | None) -> str | None:
    """Return the end of a text from an agent, made safe to print; None if the text is blank."""
    # Each character may take two in the input: Windows line ends.
    clean = output_lines((text or "")[-2 * MOST_SAID :]).strip()
    return (clean if len(clean) <= MOST_SAID else ELLIPSIS + clean[1 - MOST_SAID :]) or None


def describe_exit(exit_code: int) -> str:
    """Return a description of a program's end: `exited with 3` or `ended by SIGKILL`."""
    try:
        # A shell and Docker report a death by signal as 128 plus its number.
        return f"ended by {signal.Signals(exit_code - 128).name}"
    except ValueError:
        return f"exited with {exit_code}"
