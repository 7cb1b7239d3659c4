"""Find what an agent says of itself in output that may be huge, damaged or hostile."""

import json
import math
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from orchestrator.text.sanitize import one_line

_CHUNK: Final = 256 * 1024
_OVERLAP: Final = 256
"""More than the longest quoted key, so that one cut by a chunk's end is still found."""
_WINDOWS: Final = (4 * 1024, 64 * 1024, 1024 * 1024)
"""Bytes tried for one object: most are small, and none may be larger than the last."""
_LARGEST: Final = _WINDOWS[-1]

# A worker may print millions of lines that look like the start of a report. It only cheats itself
# out of its own figures; these bounds keep it from also taking our time (about 2 s at worst).
_MAX_LINES: Final = 250_000
_MAX_PARSED: Final = 16 * 1024 * 1024
_MAX_STREAMED: Final = 64 * 1024 * 1024
"""Bytes of lines parsed one after the other: whole transcripts, with what every tool printed."""

_TAIL: Final = 8 * 1024
_LONGEST_TOKEN: Final = 16
"""An error this close to the end of a window may come from the cut: `-Infinity`, `\\ud83d`."""
# What some programs draw around their errors.
_FRAME: Final = " \t│╭─╮╰╯"
# Possessive: without it a long run of blanks would be walked twice.
_OBJECT_START: Final = re.compile(rb'\n\{[ \t\r\n]*+(?:"|\Z)')


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def find_report(path: Path, *alternatives: frozenset[str]) -> dict[str, object] | None:
    """Find the last JSON object that begins a line and has every key of one of `alternatives`.

    Whatever the file is, time and memory are bounded: it is read backward in small pieces, objects
    larger than 1 MiB are passed over, and the search gives up after too many false starts.
    """
    with path.open("rb") as file:
        parsed = 0
        for start in _possible_starts(file, alternatives):
            found, used = _parse_at(file, start)
            if found is not None and any(keys <= found.keys() for keys in alternatives):
                return found
            parsed += used
            if parsed > _MAX_PARSED:
                break
    return None


def parse_object(text: str) -> dict[str, object] | None:
    """Read text that is one JSON object and nothing else, or give None."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_lines(path: Path, *marks: bytes) -> Iterator[dict[str, object]]:
    """Yield the lines that are a JSON object and hold one of `marks`, first to last.

    Time and memory are bounded here too: longer lines than 1 MiB are passed over, and a file with
    too much in it is not read to its end.
    """
    parsed, whole = 0, True
    with path.open("rb") as file:
        for _ in range(_MAX_LINES):
            line = file.readline(_LARGEST)
            begins, whole = whole, line.endswith(b"\n")
            if not line or parsed > _MAX_STREAMED:
                return
            if begins and line.startswith(b"{") and any(mark in line for mark in marks):
                parsed += len(line)
                found = parse_object(line.decode("utf-8", errors="replace"))
                if found is not None:
                    yield found


def text_tail(path: Path, limit: int) -> str:
    """Return the last `limit` bytes of a file as text, what is not UTF-8 being replaced."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        raw = _read(file, max(0, size - limit), limit)
    if size > limit:
        raw = raw.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character that was cut
    return raw.decode("utf-8", errors="replace")


def last_line(path: Path) -> str | None:
    """Return the last line of a file that says something, safe to show, or None."""
    lines = (line.strip(_FRAME) for line in reversed(text_tail(path, _TAIL).splitlines()))
    line = next(filter(None, lines), None)
    return None if line is None else one_line(line)


def _parse_at(file: BinaryIO, start: int) -> tuple[dict[str, object] | None, int]:
    """Parse the object that begins at `start`; also tell how many bytes had to be parsed."""
    used = 0
    for window in _WINDOWS:
        raw = _read(file, start, window)
        try:
            found, end = _DECODER.raw_decode(raw.decode("utf-8", errors="replace"))
            return found, used + end
        except json.JSONDecodeError as error:
            used += len(raw)
            if len(raw) < window or not _cut_short(error):
                break
        except (ValueError, RecursionError):  # NaN, an integer of thousands of digits, deep nesting
            used += len(raw)
            break
    return None, used


def _cut_short(error: json.JSONDecodeError) -> bool:
    unterminated = error.msg.startswith("Unterminated string")
    return unterminated or error.pos >= len(error.doc) - _LONGEST_TOKEN


def _possible_starts(file: BinaryIO, alternatives: Collection[frozenset[str]]) -> Iterator[int]:
    """Yield, last first, where a line begins an object that the wanted keys follow closely."""
    scan = _KeyScan(alternatives)
    lines = 0
    for base, data in _chunks_backward(file):
        if not scan.may_match(base, data):
            scan.advance(base, data, 0, len(data))
            continue
        end = len(data)
        for match in reversed(list(_OBJECT_START.finditer(data))):
            start = match.start() + 1
            scan.advance(base, data, start, end)
            end = start
            if scan.matches(base + start):
                yield base + start
        scan.advance(base, data, 0, end)
        lines += data.count(b"\n{")
        if lines > _MAX_LINES:
            return


class _KeyScan:
    """Knows where each key comes next, while a file is walked backward.

    It turns away, at the price of one search through the file, the many lines of ordinary output
    that begin with a brace.
    """

    def __init__(self, alternatives: Collection[frozenset[str]]) -> None:
        self._alternatives = [
            [json.dumps(key).encode() for key in sorted(keys)] for keys in alternatives
        ]
        self._next: dict[bytes, float] = {
            key: math.inf for keys in self._alternatives for key in keys
        }

    def advance(self, base: int, data: bytes, start: int, end: int) -> None:
        """Take in `data[start:end]`, which lies before everything taken in so far."""
        for key in self._next:
            at = data.find(key, start, end)
            if at >= 0:
                self._next[key] = base + at

    def may_match(self, base: int, data: bytes) -> bool:
        """Return whether any object that begins in `data` could have the keys."""
        reach = base + len(data) + _LARGEST
        return any(
            all(self._next[key] < reach or key in data for key in keys)
            for keys in self._alternatives
        )

    def matches(self, start: int) -> bool:
        """Return whether the keys follow closely enough on `start`."""
        reach = start + _LARGEST
        return any(all(self._next[key] < reach for key in keys) for keys in self._alternatives)


def _chunks_backward(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of overlapping pieces, the last first.

    Each begins one byte early, so that the newline before its first character can be seen; the
    file itself is taken to follow one.
    """
    size = file.seek(0, 2)
    for start in range((size - 1) // _CHUNK * _CHUNK, -1, -_CHUNK):
        data = _read(file, max(0, start - 1), _CHUNK + _OVERLAP)
        yield start - 1, data if start else b"\n" + data


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)
