"""Parse the time at which a model's API accepts requests again, from the text of its refusal.

The text comes from a worker and is untrusted: unknown formats are ignored, and the caller limits
the time that a worker waits.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from orchestrator.base.results import Reason

_LONGEST: Final = 366 * 86_400.0
_MOST_TEXT: Final = 4096
_JUST_OVER: Final = timedelta(minutes=10)
"""Period after a time of day in which a text with this time means today, and not tomorrow."""

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART: Final = re.compile(
    r"\s{0,2}(?:,\s?|and\s)?(?P<number>\d{1,9}(?:\.\d{1,9})?)\s?"
    r"(?P<unit>ms|milliseconds?|secs?|seconds?|s|mins?|minutes?|m|hours?|hrs?|h|days?|d)"
    r"(?![a-z])",
    re.IGNORECASE,
)
_BEFORE_DURATION: Final = re.compile(
    r"\b(?:try again|retry|resets?|available again|wait)(?: in| after| for)?(?=\s{1,2}\d)"
    r"|\bretryDelay\W{1,4}(?=\d)",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(
    r"\bretry[-_ ]after(?P<ms>[-_ ]ms)?\W{1,4}(?P<number>\d{1,9}(?:\.\d{1,9})?)(?!\s?[a-z\d])",
    re.IGNORECASE,
)
_EPOCH: Final = re.compile(
    r"(?:limit reached\||\bresets?_?at\W{1,4})(?P<number>\d{10})(?P<ms>\d{3})?\b", re.IGNORECASE
)
_ISO: Final = re.compile(
    r"(?:resets?|try again|until|after)\b\D{0,20}"
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK: Final = re.compile(
    r"\b(?:resets?|try again|available again)(?: at| on)?\s{1,2}"
    rf"(?:(?P<weekday>{'|'.join(_DAYS)})[a-z]{{0,6}},?\s(?:at\s)?"
    rf"|(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    r"(?:,?\s(?P<year>\d{4}))?,?\s(?:at\s)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s?(?P<half>am|pm)?\b"
    r"(?:\s\(?(?P<zone>UTC|GMT(?:[+-]\d{1,2})?|[A-Z][A-Za-z_]{1,30}(?:/[A-Za-z_+-]{1,30}){1,2})\)?)?"
    r"(?!\s?\()",  # no match with an unknown time zone
    re.IGNORECASE,
)


def retry_after(reason: Reason | None, text: str | None) -> float | None:
    """Return the seconds until a rate-limited worker may retry; None if unknown or not limited."""
    return resets_in(text or "", datetime.now(UTC)) if reason is Reason.RATE_LIMITED else None


def resets_in(text: str, now: datetime) -> float | None:
    """Return the seconds until requests are accepted again; None if the text does not say.

    Args:
        text: For example `session limit · resets 3pm (UTC)`, `try again in 20s`, `Retry-After: 20`.
        now: The current time with its zone. Times in the text without a zone are UTC.
    """
    text = text[:_MOST_TEXT]
    for seconds in _readings(text, now):
        if math.isfinite(seconds):
            return min(max(seconds, 0.0), _LONGEST)
    return None


def _readings(text: str, now: datetime) -> Iterator[float]:
    for match in _HEADER.finditer(text):
        yield float(match["number"]) * (0.001 if match["ms"] else 1.0)
    for match in _EPOCH.finditer(text):
        yield float(match["number"]) - now.timestamp()
    for match in _ISO.finditer(text):
        with suppress(ValueError):
            moment = datetime.fromisoformat(match["time"] + (match["zone"] or "Z").upper())
            yield (moment - now).total_seconds()
    for match in _BEFORE_DURATION.finditer(text):
        start = match.end()
        seconds, position = 0.0, start
        while part := _PART.match(text, position):
            unit = part["unit"].lower()
            seconds += (
                float(part["number"]) * _UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]]
            )
            position = part.end()
        if position > start:
            yield seconds
    for match in _CLOCK.finditer(text):
        yield from _until_clock(match, now)


def _until_clock(match: re.Match[str], now: datetime) -> Iterator[float]:
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    if not half and match["minute"] is None:
        return
    if half:
        if not 1 <= hour <= 12:
            return
        hour = hour % 12 + (12 if half == "pm" else 0)
    name = match["zone"] or "UTC"
    offset = re.fullmatch(r"(?:UTC|GMT)(?P<hours>[+-]\d{1,2})?", name, re.IGNORECASE)
    try:
        hours = None if offset is None else timedelta(hours=int(offset["hours"] or 0))
        zone = ZoneInfo(name) if hours is None else timezone(hours)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return
    try:
        here = now.astimezone(zone)
        today = here.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
        yield (_next_occurrence(match, today, here) - now).total_seconds()
    except (ValueError, OverflowError):
        return


def _next_occurrence(match: re.Match[str], today: datetime, here: datetime) -> datetime:
    """Return the moment that a weekday, date or time of day in a refusal refers to.

    It is the next such moment, unless the last one passed only a short time ago.
    """
    if match["month"] is not None:
        month = _MONTHS.index(match["month"].lower()) + 1
        year = int(match["year"] or here.year)
        named = today.replace(year=year, month=month, day=int(match["day"]))
        is_over = match["year"] is None and here - named > timedelta(days=31)
        return named.replace(year=year + 1) if is_over else named
    if match["weekday"] is not None:
        ahead = (_DAYS.index(match["weekday"].lower()) - here.weekday()) % 7
        named = today + timedelta(days=ahead)
        return named + timedelta(days=7) if here - named > _JUST_OVER else named
    return today + timedelta(days=1) if here - today > _JUST_OVER else today
