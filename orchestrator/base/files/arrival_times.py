"""Record when the bytes of a growing file arrived, in a small file beside it.

Each line of the record has an offset in the file, and the Unix time at which the bytes from there
on arrived. A record contains nothing of the file's content, so that no content can forge a time.
"""

import re
import time
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited

MOST_TIMES = 4096
"""Maximum number of lines of a record."""
_LARGEST = 64 * MOST_TIMES
_ENTRY = re.compile(rb"^(\d{1,15}) (\d{1,11})$", re.MULTILINE)


@dataclass(frozen=True)
class ArrivalTimes:
    """The times at which the bytes of a file arrived, up to a few seconds."""

    offsets: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    """The time of each offset, since the Unix epoch."""

    @classmethod
    def of(cls, path: Path) -> "ArrivalTimes":
        """Return the recorded times of a file; none if there is no readable record."""
        entries: list[tuple[int, int]] = []
        with suppress(OSError):
            # protection: records-of-times-are-bounded
            data = read_limited(_record(path), most=_LARGEST)
            entries = sorted((int(offset), int(second)) for offset, second in _ENTRY.findall(data))
        return cls(tuple(entry[0] for entry in entries), tuple(entry[1] for entry in entries))

    def at(self, offset: int) -> datetime | None:
        """Return the time at which a byte arrived; None if it was not recorded."""
        place = bisect_right(self.offsets, offset) - 1
        return None if place < 0 else datetime.fromtimestamp(self.seconds[place], UTC)


class ArrivalRecorder:
    """Records when bytes are added to a file; if the disk is full, their time is not recorded."""

    def __init__(self, path: Path, *, known: int | None = None) -> None:
        """Start a record, or continue the record of an earlier process.

        Args:
            path: The file.
            known: Number of bytes that an earlier process received. They may be received again, but
                keep their times. None: there was no earlier process, and all bytes are new.
        """
        self._path = path
        self._known = known or 0
        self._interval = 1
        """Minimum number of seconds between two lines."""
        self._last = 0
        """The time of the last line."""
        if known is None:
            _record(path).unlink(missing_ok=True)
        self._count = len(ArrivalTimes.of(path).offsets)

    def note(self, begin: int, end: int) -> None:
        """Record that the bytes from one offset to another have arrived now."""
        now = int(time.time())
        # protection: rate-of-recorded-times-limited
        if abs(now - self._last) < self._interval:
            return
        if end <= self._known:
            return
        self._last = now
        with suppress(OSError):
            # protection: number-of-recorded-times-limited
            if self._count >= MOST_TIMES:
                times = ArrivalTimes.of(self._path)
                kept = list(zip(times.offsets, times.seconds, strict=True))
                while len(kept) > MOST_TIMES // 2:
                    self._interval *= 2
                    kept = list(_apart(kept, self._interval))
                text = "".join(_line(*entry) for entry in kept)
                write_atomically(_record(self._path), text, durable=False)
                self._count = len(kept)
            with _record(self._path).open("a") as file:
                file.write(_line(max(begin, self._known), now))
            self._count += 1


def _record(path: Path) -> Path:
    return path.with_suffix(".times")


def _line(offset: int, second: int) -> str:
    return f"{offset} {second}\n"


def _apart(entries: Iterable[tuple[int, int]], interval: int) -> Iterable[tuple[int, int]]:
    """Yield entries whose times differ by an interval or more from the one before."""
    last: int | None = None
    for offset, second in entries:
        if last is None or abs(second - last) >= interval:
            yield offset, second
            last = second
