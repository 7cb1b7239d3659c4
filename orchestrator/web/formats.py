"""Format numbers and times for pages."""

from datetime import UTC, datetime

from orchestrator.text.quantities import money

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
MINUS = "\N{MINUS SIGN}"
UNKNOWN = "\N{EN DASH}"


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def short_duration(seconds: float) -> str:
    """Return a duration such as `4.2s`, `1m 12s` or `2h 05m`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago something happened: `just now`, `5m ago`, `3d ago`."""
    seconds = (now - then).total_seconds()
    if seconds < _MINUTE:
        return "just now"
    for unit, length, most in (("m", _MINUTE, _HOUR), ("h", _HOUR, 2 * _DAY)):
        if seconds < most:
            return f"{seconds // length:.0f}{unit} ago"
    return f"{seconds // _DAY:.0f}d ago"


def moment(at: datetime) -> str:
    """Return a time in UTC, such as `2026-11-22 14:05:09 UTC`."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def dollars(cost: float, *, known: bool = True) -> str:
    """Return US dollars such as `$1.20` or `$0.0124`; a dash if the amount is not known."""
    return money(cost) if known else UNKNOWN


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 file` or `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
