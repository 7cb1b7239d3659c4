"""Read a range of a worker's log, however large or fast-growing the log is."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.base.files.arrival_times import ArrivalTimes
from orchestrator.base.files.remove_tree import entry_names
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.quantities import size
from orchestrator.base.text.sanitize import SEQUENCE, output_line, without_sequences_in
from orchestrator.faces.web.ansi import Run, runs_of
from orchestrator.state.record.history import attempts
from orchestrator.state.run_directory import RunDirectory

CHUNK = 256 * 1024
"""Maximum number of bytes of a log that one request returns."""
BURST = 64 * 1024
"""Maximum number of bytes that one request returns of a log that grows faster than it is read."""
_NAME = re.compile(r"(stdout|stderr|setup|teardown|check-[A-Za-z0-9_.-]+|service-[A-Za-z0-9_.-]+)")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ERROR = re.compile(
    rb"(?<!no )(?<!\b0 )\b(?:errors?|fatal|panic|exception|traceback|failed|failures?)\b"
)
MOST_FOUND = 100
"""Maximum number of lines that a search returns."""
_PATIENCE = 5.0
"""Maximum number of seconds of a search."""
_LONGEST = 2000
"""Number of bytes of a found line from which its text is made."""
_BEFORE = 8 * 1024
"""Number of bytes that are shown before a line that was found."""
_MOST_LOGS = 200
"""Maximum number of logs that are listed for a worker."""
MOST_TIMED = 4000
"""Maximum number of lines of which each has a time; of more lines, only those have one whose time
differs from the line before.
"""
_TIME = "time"
"""The style of a span that is not part of the output: when the line arrived."""


@dataclass(frozen=True)
class Log:
    """A log file of a worker."""

    name: str
    """Name in addresses of pages: `stdout`, or `stdout.1` for an earlier attempt 1."""
    label: str
    path: Path
    size: int

    @property
    def amount(self) -> str:
        """The size of the log with a unit, such as `14.2 MB`."""
        return size(self.size)


@dataclass(frozen=True)
class Piece:
    """A range of a log, from `begin` up to `end` of its `size` bytes."""

    runs: tuple[Run, ...]
    """The text, as spans with colours, and the times of its lines."""
    begin: int
    end: int
    size: int
    skipped: int = 0
    """Number of bytes before `begin` that were left out, because the log grew too fast."""
    hit: tuple[int, int] | None = None
    """The first span of the line that was asked for, and the first after that line."""

    @property
    def text(self) -> str:
        """The text without colours and times."""
        return "".join(run.text for run in self.runs if run.look != _TIME)

    @property
    def times(self) -> tuple[str, ...]:
        """The times of lines in UTC, such as `14:05:09Z`."""
        return tuple(run.text.strip() for run in self.runs if run.look == _TIME)


def logs_of(directory: RunDirectory, worker_id: int) -> list[Log]:
    """Return the logs of a worker; the logs of its latest attempt come first."""
    found: list[Log] = []
    for attempt, place in reversed(attempts(directory, worker_id)):
        for name in sorted(entry_names(place), key=_order):
            stem, dot, suffix = name.rpartition(".")
            # protection: only-files-with-names-of-logs-are-served
            if not dot or suffix != "log" or not _NAME.fullmatch(stem):
                continue
            try:
                # protection: links-instead-of-logs-are-not-followed
                with open_regular(place / name) as file:
                    length = os.fstat(file.fileno()).st_size
            except OSError:
                continue
            short = stem if attempt is None else f"{stem}.{attempt}"
            label = stem if attempt is None else f"{stem}, attempt {attempt}"
            found.append(Log(short, label, place / name, length))
    return found[:_MOST_LOGS]


def _order(name: str) -> tuple[int, str]:
    first = ("stdout", "stderr", "setup", "check", "teardown", "service")
    return next((i for i, start in enumerate(first) if name.startswith(start)), 9), name


def read_end(log: Log) -> Piece:
    """Return the last part of a log.

    Raises:
        OSError: The log cannot be read.
    """
    return read_before(log, log.size)


def read_before(log: Log, end: int, *, most: int = CHUNK) -> Piece:
    """Return the part of a log that ends at an offset, without a cut first line.

    Args:
        log: The log.
        end: The offset in bytes.
        most: Maximum number of bytes.

    Raises:
        OSError: The log cannot be read.
    """
    end = max(0, min(end, log.size))
    # protection: pieces-of-logs-have-limit
    begin = max(0, end - most)
    data = _read(log, begin, end - begin)
    if begin > 0:
        cut = data.find(b"\n") + 1
        begin, data = begin + cut, data[cut:]
    return Piece(_shown(log, begin, data), begin, begin + len(data), log.size)


def read_after(log: Log, begin: int) -> Piece:
    """Return the part of a log from an offset on, or only the log's end if the part is too large.

    Only whole lines are returned, so that no character and no `[redacted:NAME]` is cut.

    Raises:
        OSError: The log cannot be read.
    """
    if not 0 <= begin <= log.size:
        return read_end(log)
    # protection: new-output-has-limit
    if log.size - begin > CHUNK:
        piece = read_before(log, log.size, most=BURST)
        return replace(piece, skipped=piece.begin - begin)
    data = _read(log, begin, log.size - begin)
    whole = data.rfind(b"\n") + 1
    data = data[:whole] if whole else b""
    return Piece(_shown(log, begin, data), begin, begin + len(data), log.size)


def read_rest(log: Log, begin: int) -> Piece:
    """Return the part of a log from an offset on, including an unfinished last line.

    Raises:
        OSError: The log cannot be read.
    """
    piece = read_after(log, begin)
    if piece.end == log.size:
        return piece
    data = _read(log, piece.begin, log.size - piece.begin)
    runs = _shown(log, piece.begin, data)
    return Piece(runs, piece.begin, piece.begin + len(data), log.size, piece.skipped)


@dataclass(frozen=True)
class Match:
    """A line of a log that contains the text a user searches for."""

    number: int
    """Number of the line, from 1."""
    begin: int
    """Offset of the line in bytes."""
    text: str


def find_lines(log: Log, wanted: str) -> tuple[list[Match], bool]:
    """Return lines of a log that contain a text, ignoring the case of ASCII letters.

    Returns:
        The first lines, at most `MOST_FOUND`, and whether there may be more.

    Raises:
        OSError: The log cannot be read.
    """
    needle = wanted.encode("utf-8", "replace").lower()
    return _lines_with(log, re.compile(re.escape(needle)), MOST_FOUND)


def find_error(log: Log) -> Match | None:
    """Return the first line of a log that looks like an error; None if there is none.

    Raises:
        OSError: The log cannot be read.
    """
    found, _ = _lines_with(log, _ERROR, 1)
    return found[0] if found else None


def _lines_with(log: Log, pattern: re.Pattern[bytes], most: int) -> tuple[list[Match], bool]:
    found: list[Match] = []
    number, place, rest, until = 0, 0, b"", time.monotonic() + _PATIENCE
    with open_regular(log.path) as file:
        while (data := file.read(CHUNK)) and file.tell() <= log.size + CHUNK:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                number += 1
                if pattern.search(without_sequences_in(line).lower()):
                    if len(found) == most:
                        return found, True
                    text = output_line(line[:_LONGEST].decode("utf-8", "replace"))
                    found.append(Match(number, place, text))
                place += len(line) + 1
            if len(rest) > CHUNK:
                # A line without an end is searched in pieces.
                place, rest = place + len(rest), b""
            # protection: searches-of-logs-end-in-time
            if time.monotonic() > until:
                return found, True
    if rest and pattern.search(without_sequences_in(rest).lower()) and len(found) < most:
        text = output_line(rest[:_LONGEST].decode("utf-8", "replace"))
        found.append(Match(number + 1, place, text))
    return found, False


def read_at(log: Log, begin: int) -> Piece:
    """Return the part of a log around a line that begins at an offset.

    Raises:
        OSError: The log cannot be read.
    """
    first = max(0, min(begin, log.size) - _BEFORE)
    data = _read(log, first, BURST)
    cut = data.find(b"\n") + 1 if first else 0
    end = len(data) if first + len(data) >= log.size else data.rfind(b"\n") + 1
    end = max(end, cut)
    place = min(max(begin - first, cut), end)
    after = min(data.find(b"\n", place, end) + 1 or end, end)
    ranges = ((cut, place), (place, after), (after, end))
    parts = [_shown(log, first + a, data[a:b]) for a, b in ranges]
    hit = len(parts[0]), len(parts[0]) + len(parts[1])
    runs = (*parts[0], *parts[1], *parts[2])
    return Piece(runs, first + cut, first + end, log.size, hit=hit)


def _read(log: Log, begin: int, count: int) -> bytes:
    with open_regular(log.path) as file:
        file.seek(begin)
        return file.read(count)


def _shown(log: Log, begin: int, data: bytes) -> tuple[Run, ...]:
    """Return a part of a log as spans with colours, and with the times of its lines."""
    times = ArrivalTimes.of(log.path)
    if not times.offsets:
        return _clean(data)
    ends = [found.end() for found in re.finditer(rb"\n", data)]
    found_at = [times.at(begin + offset) for offset in (0, *ends)]
    labels = [f"{at:%H:%M:%S}Z " if at else "" for at in found_at]
    # protection: number-of-times-on-page-has-limit
    if len(labels) > MOST_TIMED:
        labels = [b if a != b else "" for a, b in zip(["", *labels], labels, strict=False)]
    return tuple(run for run in _timed(_clean(data), labels) if run.text)


def _timed(runs: tuple[Run, ...], labels: Sequence[str]) -> Iterator[Run]:
    """Yield spans, with the time before each line that has one."""
    following, starts = iter(labels), True
    for run in runs:
        text = ""
        for line in _LINE.findall(run.text):
            if starts and (label := next(following, "")):
                yield Run(run.look, text)
                yield Run(_TIME, label)
                text = ""
            text += line
            starts = line.endswith("\n")
        yield Run(run.look, text)


def _clean(data: bytes) -> tuple[Run, ...]:
    text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return runs_of(text)


def _last_state(line: str) -> str:
    """Return what a terminal shows of a line that a program wrote again, such as a progress bar."""
    states = line.split("\r")
    last = next((n for n in reversed(range(len(states))) if _COLOUR.sub("", states[n])), 0)
    # What the older states of the line said about colours stays, and later colours are no state.
    return "".join(SEQUENCE.findall("\r".join(states[:last]))) + "".join(states[last:])


def raw(log: Log) -> Iterator[bytes]:
    """Yield the bytes of a log, at most as many as it had when it was listed.

    Raises:
        OSError: The log cannot be read.
    """
    with open_regular(log.path) as file:
        left = log.size
        while left > 0 and (piece := file.read(min(left, CHUNK))):
            left -= len(piece)
            yield piece
