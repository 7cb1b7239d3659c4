"""Tests of parsing when a provider accepts requests again, in real and hostile messages."""

import random
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from orchestrator.agents.output.reset_times import resets_in

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)  # a Saturday
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

SAID = {
    "Rate limit reached for gpt-4o on tokens per min (TPM): 3000. Please try again in 1.2s.": 1.2,
    "Please try again in 6ms. Visit the site": 0.006,
    "Please try again in 7m12.3s.": 7 * MINUTE + 12.3,
    "try again in 20s": 20.0,
    "You've hit your usage limit. Upgrade or try again in 5 days 22 hours 11 minutes.": (
        5 * DAY + 22 * HOUR + 11 * MINUTE
    ),
    "try again in 1 hour, 5 minutes and 2 seconds": HOUR + 5 * MINUTE + 2,
    "You exceeded your current quota. Please retry in 36.94s.": 36.94,
    '{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36s"}': 36.0,
    "You have exhausted your capacity. Your quota will reset after 2h3m4s.": (
        2 * HOUR + 3 * MINUTE + 4
    ),
    "429 Too Many Requests, Retry-After: 17": 17.0,
    "retry-after-ms: 1500": 1.5,
    '"retry_after": 2.5': 2.5,
    "Too many requests, retry after 20 seconds": 20.0,
    "You've hit your session limit · resets 3pm (UTC)": 3 * HOUR,
    "You've hit your session limit \u00b7 resets 3:30pm (Europe/Berlin)": 2.5 * HOUR,
    "5-hour limit reached \u2219 resets 11am": 23 * HOUR,
    "limit \u00b7 resets 11:55am (UTC)": -0.0,
    "weekly limit \u00b7 resets Mon 9:00 AM": 2 * DAY - 3 * HOUR,
    "weekly limit \u00b7 resets Nov 24, 3pm (UTC)": 3 * DAY + 3 * HOUR,
    "try again at Nov 21st, 2026 12:10 PM.": 10 * MINUTE,
    "resets Jan 2, 12am": 41.5 * DAY,
    "Access resets at 10:57 AM GMT-3.": HOUR + 57 * MINUTE,
    "try again at 15:05": 3 * HOUR + 5 * MINUTE,
    "limit resets at: 2026-11-21T12:13:01+0000": 13 * MINUTE + 1,
    "resets at 2026-11-21T14:00:00.250+01:00": HOUR,
    "Claude AI usage limit reached|1795262460": 60.0,
    '"resetsAt":1795262460000': 60.0,
}

UNSAID = [
    "",
    "Rate limit reached",
    "Try again later or check your quotas.",
    "exceeded retry limit, last status: 429 Too Many Requests",
    "resets 5",
    "resets 25:00",
    "resets 13pm",
    "resets 3pm (Nowhere/Atall)",
    "resets 3pm (Etc/../../passwd)",
    "resets Feb 31, 3pm",
    "try again at 10 de jul. de 2026, 11:52.",
    "try again in a while",
    "until 2026-99-99T00:00:00Z",
]


@pytest.mark.parametrize("text", SAID)
def test_reset_times_of_real_messages_are_parsed(text: str) -> None:
    assert resets_in(text, NOW) == pytest.approx(SAID[text])


@pytest.mark.parametrize("text", UNSAID)
def test_unknown_messages_have_no_reset_time(text: str) -> None:
    assert resets_in(text, NOW) is None


def test_current_time_may_have_any_time_zone() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
    assert resets_in("resets 3pm (UTC)", elsewhere) == 3 * HOUR


@pytest.mark.parametrize("year", [1, 9999])
def test_first_and_last_year_cause_no_error(year: int) -> None:
    now = datetime(year, 12, 31, 23, 59, tzinfo=UTC)
    for text in SAID:
        found = resets_in(text, now)
        assert found is None or 0 <= found <= 366 * DAY


def test_parsing_time_and_value_are_bounded() -> None:
    pieces = [
        "try again in ",
        "9" * 30,
        "d ",
        "resets ",
        "Nov ",
        "3pm ",
        "Retry-After: ",
        "(A/",
        " ",
    ]
    chance = random.Random(6)
    started = time.process_time()
    for _ in range(200):
        text = "".join(chance.choice(pieces) * chance.randint(1, 40) for _ in range(200))
        found = resets_in(text, NOW)
        assert found is None or 0 <= found <= 366 * DAY
    assert time.process_time() - started < 20
    assert resets_in("try again in 999999999 days", NOW) == 366 * DAY
