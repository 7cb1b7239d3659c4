"""Parse ages such as `90s`, `15m`, `6h` or `2d`."""

import re
from datetime import timedelta

_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
AGE = "[0-9]{1,5}[smhd]"
"""Regular expression that matches an age."""


def parse_age(text: str) -> timedelta:
    """Convert an age such as `90s` or `2d` to a time span.

    Raises:
        ValueError: The text is not an age.
    """
    if not re.fullmatch(AGE, text):
        raise ValueError("an age must be a whole number and a unit, such as 15m, 6h or 2d")
    return int(text[:-1]) * _UNITS[text[-1]]
