"""Tests of recorded times: of the right bytes, few, and never of what a file contains."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.base.files import arrival_times as module
from orchestrator.base.files.arrival_times import (
    MOST_TIMES,
    ArrivalRecorder,
    ArrivalTimes,
)

BEGAN = 1_790_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the clock of recorded times, which stands at `at` seconds after `BEGAN`."""
    clock = SimpleNamespace(at=0.0, time=lambda: BEGAN + clock.at)
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "stdout.log"


def seconds(log: Path, offset: int) -> float | None:
    """Return the recorded time of a byte, in seconds since `BEGAN`."""
    at = ArrivalTimes.of(log).at(offset)
    return None if at is None else at.timestamp() - BEGAN


def test_bytes_after_a_pause_have_their_own_time(log: Path, clock: SimpleNamespace) -> None:
    recorder = ArrivalRecorder(log)
    for clock.at, begin, end in ((0, 0, 10), (0.9, 10, 20), (7.9, 20, 21), (8, 21, 30)):
        recorder.note(begin, end)
    assert [seconds(log, offset) for offset in (0, 9, 19, 20, 21, 5000)] == [0, 0, 0, 7, 8, 8]
    assert ArrivalTimes.of(log).at(0) == datetime.fromtimestamp(BEGAN, UTC)


def test_a_flood_is_recorded_once_a_second(log: Path, clock: SimpleNamespace) -> None:
    recorder = ArrivalRecorder(log)
    for number in range(5000):
        clock.at = number / 1000
        recorder.note(number, number + 1)
    assert log.with_suffix(".times").read_bytes().count(b"\n") == 5


def test_a_long_record_has_few_lines_and_stays_right(log: Path, clock: SimpleNamespace) -> None:
    recorder, count, pause = ArrivalRecorder(log), 20_000, 3600
    true = [number + pause * (number > count // 2) for number in range(count)]
    for number, clock.at in enumerate(true):
        recorder.note(10 * number, 10 * number + 10)
    assert MOST_TIMES // 4 < log.with_suffix(".times").read_bytes().count(b"\n") <= MOST_TIMES
    times = ArrivalTimes.of(log)
    late = [at - (times.at(10 * n).timestamp() - BEGAN) for n, at in enumerate(true)]
    assert 0 <= min(late) <= max(late) <= 16


def test_bytes_that_are_received_again_keep_their_times(log: Path, clock: SimpleNamespace) -> None:
    first = ArrivalRecorder(log)
    first.note(0, 100)
    clock.at = 5
    first.note(100, 200)
    clock.at = 60
    # The first process that goes on ends before it has received everything again.
    ArrivalRecorder(log, known=200).note(0, 150)
    again = ArrivalRecorder(log, known=200)
    again.note(0, 150)
    again.note(150, 400)
    assert [seconds(log, offset) for offset in (0, 99, 100, 199)] == [0, 0, 5, 5]
    assert seconds(log, 200) == 60


def test_a_new_file_has_no_times_of_an_earlier_one(log: Path) -> None:
    ArrivalRecorder(log).note(0, 100)
    ArrivalRecorder(log)
    assert ArrivalTimes.of(log) == ArrivalTimes()


def link(path: Path) -> None:
    path.with_name("elsewhere").write_text("0 1790000000\n")
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("0 yesterday\n-5 1790000000\n\n0\n 0 1790000000"),
        lambda path: path.write_text(f"{'9' * 40} {'9' * 40}\n"),
        lambda path: path.write_text("0 1790000000\n" * 100_000),
        os.mkfifo,
        Path.mkdir,
        link,
    ],
    ids=["other text", "long numbers", "large", "fifo", "directory", "link"],
)
def test_what_is_no_record_says_nothing(log: Path, make: Callable[[Path], None]) -> None:
    make(log.with_suffix(".times"))
    assert ArrivalTimes.of(log) == ArrivalTimes()


def test_without_room_on_the_disk_there_are_no_times(log: Path) -> None:
    recorder = ArrivalRecorder(log)
    log.with_suffix(".times").symlink_to("/dev/full")
    recorder.note(0, 5)
    assert not ArrivalTimes.of(log).offsets
