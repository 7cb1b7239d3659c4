"""Format numbers and times for pages."""

from datetime import UTC, datetime

from orchestrator.text.quantities import money

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
MINUS = "\N{MINUS SIGN}"
UNKNOWN = "\N{EN DASH}"


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


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


def dollars(cost: float | None) -> str:
    """Return US dollars such as `$1.20` or `$0.0124`; a dash if the amount is not known."""
    return UNKNOWN if cost is None else money(cost)
