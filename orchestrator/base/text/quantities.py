"""Format durations, amounts of money, sizes, counts and lists of names."""

from collections import Counter
from collections.abc import Sequence

UNKNOWN = "?"
_LISTED = 3
"""Maximum number of names that a text lists."""


def duration(seconds: float) -> str:
    """Return a duration such as `12.3 s`, `2 min 5 s` or `1 h 2 min`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def short_duration(seconds: float) -> str:
    """Return a duration for pages and drawings, such as `4.2s`, `1m 12s` or `2h 05m`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def money(cost: float, *, known: bool = True) -> str:
    """Return an amount such as `$1.20` (four decimals below $1); `UNKNOWN` if not `known`."""
    if not known:
        return UNKNOWN
    return f"${cost:.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def total_cost(costs: Sequence[float | None]) -> str:
    """Return a sum such as `$1.20 and 2 unknown`, of amounts rounded as `money` shows them."""
    known = [round(cost, 2 if cost >= 1 else 4) for cost in costs if cost is not None]
    unknown = len(costs) - len(known)
    return money(sum(known), known=bool(known)) + (
        f" and {unknown} unknown" if unknown and known else ""
    )


def size(octets: int) -> str:
    """Return a number of bytes in the largest unit that it fills, such as `64 KiB` or `1.5 GiB`."""
    value, unit = float(octets), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.1f}".removesuffix(".0") + f" {unit}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 file` or `2,000 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tally(names: Sequence[str], *, first: Sequence[str]) -> str:
    """Return how often each name occurs, such as `2 success, 1 failed`; names in `first` lead."""
    numbers = Counter(names)
    ordered = [*first, *sorted(numbers.keys() - {*first})]
    return ", ".join(f"{numbers[name]} {name}" for name in ordered if numbers[name])


def slots_in_use(slots: int) -> str:
    """Return the text that says that a worker waits because all `slots` slots are in use."""
    return "the only slot is in use" if slots == 1 else f"all {slots} slots are in use"


def listing(names: Sequence[str], noun: str) -> str:
    """Return names in a sentence, such as "task `a`" or "tasks `a`, `b`, `c` and 2 more"."""
    shown = [f"`{name}`" for name in names[:_LISTED]]
    left = len(names) - len(shown)
    *most, last = [*shown, f"{left} more"] if left else shown
    text = f"{', '.join(most)} and {last}" if most else last
    return f"{noun if len(names) == 1 else f'{noun}s'} {text}"
