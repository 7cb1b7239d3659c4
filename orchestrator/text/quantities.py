"""Format durations, amounts of money and counts."""

UNKNOWN = "?"


def duration(seconds: float) -> str:
    """Return a duration such as `12.3 s`, `2 min 5 s` or `1 h 2 min`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def money(cost: float, *, known: bool = True) -> str:
    """Return an amount such as `$1.20`; below a dollar, with four decimal places."""
    if not known:
        return UNKNOWN
    return f"${cost:.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 file` or `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
