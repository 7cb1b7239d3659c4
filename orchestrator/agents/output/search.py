"""Find an agent's report in output that may be huge, damaged or hostile."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NoReturn

from orchestrator.base.text.sanitize import output_line, without_sequences
from orchestrator.base.text.split_lines import lines_of_output

_CHUNK: Final = 256 * 1024
_OVERLAP: Final = 256
"""Number of bytes that two successive chunks share: more than the longest quoted key has, so that
every key is found.
"""
_WINDOWS: Final = (4 * 1024, 64 * 1024, 1024 * 1024)
"""Numbers of bytes that are read, in turn, to parse one object; larger objects are ignored."""
_LARGEST: Final = _WINDOWS[-1]

# A hostile worker may print millions of lines that look like the start of a report. These bounds
# limit the time that parsing takes to about 2 s.
_MAX_LINES: Final = 250_000
_MAX_PARSED: Final = 16 * 1024 * 1024
_MAX_STREAMED: Final = 64 * 1024 * 1024
"""Maximum number of bytes of the lines that are parsed: enough for a whole transcript with the
output of tools.
"""

_TAIL: Final = 8 * 1024
_LONGEST_TOKEN: Final = 16
r"""Maximum number of bytes of one JSON token, such as `-Infinity` or `\ud83d`: a parse error so
close to the end of the data read may only mean that a token was cut.
"""
# Characters that some programs draw around error messages.
_FRAME: Final = " \t│╭─╮╰╯"
# Possessive, because backtracking would scan long runs of blanks twice.
_OBJECT_START: Final = re.compile(rb'\n\{[ \t\r\n]*+(?:"|\Z)')


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse)


def find_report(
    path: Path,
    *alternatives: frozenset[str],
    accepts: Callable[[dict[str, object]], bool] = bool,
) -> dict[str, object] | None:
    """Return the last JSON object that starts a line and has all keys of one of `alternatives`.

    Objects that the function `accepts` returns false for are passed over.

    Time and memory are bounded for any file: the file is read backward in chunks, objects larger
    than 1 MiB are ignored, and the search stops after too many lines that might be a report.
    """
    with path.open("rb") as file:
        parsed = 0
        for start in _possible_starts(file, alternatives):
            report, used = _parse_at(file, start)
            if (
                report is not None
                and any(keys <= report.keys() for keys in alternatives)
                and accepts(report)
            ):
                return report
            parsed += used
            if parsed > _MAX_PARSED:
                break
    return None


def parse_object(text: str) -> dict[str, object] | None:
    """Return the JSON object that a text consists of; None if the text is anything else."""
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_lines(path: Path, *marks: bytes) -> Iterator[dict[str, object]]:
    """Yield the lines that are a JSON object and contain one of `marks`, in order.

    Time and memory are bounded: lines longer than 1 MiB are ignored, and reading stops after
    64 MiB of parsed lines.
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
                parsed_line = parse_object(line.decode("utf-8", errors="replace"))
                if parsed_line is not None:
                    yield parsed_line


def text_tail(path: Path, limit: int) -> str:
    """Return the last `limit` bytes of a file as text, without escape sequences of terminals.

    Invalid UTF-8 is replaced.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        raw = _read(file, max(0, size - limit), limit)
    if size > limit:
        raw = raw.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a truncated character
    return without_sequences(raw.decode("utf-8", errors="replace"))


def last_line(path: Path) -> str | None:
    """Return a file's last non-blank line, made safe to print; None if all lines are blank."""
    lines = (line.strip(_FRAME) for line in reversed(lines_of_output(text_tail(path, _TAIL))))
    line = next(filter(None, lines), None)
    return None if line is None else output_line(line)


def _parse_at(file: BinaryIO, start: int) -> tuple[dict[str, object] | None, int]:
    """Return the JSON object at an offset (None if invalid or too large), and the size parsed."""
    used = 0
    for window in _WINDOWS:
        raw = _read(file, start, window)
        try:
            value, end = _DECODER.raw_decode(raw.decode("utf-8", errors="replace"))
            return value, used + end
        except json.JSONDecodeError as error:
            used += len(raw)
            is_cut = (
                error.msg.startswith("Unterminated string")
                or error.pos >= len(error.doc) - _LONGEST_TOKEN
            )
            if len(raw) < window or not is_cut:
                break
        except (ValueError, RecursionError):  # NaN, an integer of thousands of digits, deep nesting
            used += len(raw)
            break
    return None, used


def _possible_starts(file: BinaryIO, alternatives: Collection[frozenset[str]]) -> Iterator[int]:
    """Yield the offsets, last first, where an object with the wanted keys may start."""
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
    """Tracks the next position of each wanted key while a file is read backward.

    Most lines that start with a brace can thus be rejected without parsing.
    """

    def __init__(self, alternatives: Collection[frozenset[str]]) -> None:
        self._alternatives = [
            [json.dumps(key).encode() for key in sorted(keys)] for keys in alternatives
        ]
        self._next: dict[bytes, float] = {
            key: math.inf for keys in self._alternatives for key in keys
        }

    def advance(self, base: int, data: bytes, start: int, end: int) -> None:
        """Process `data[start:end]`, which precedes all data of the file processed so far."""
        for key in self._next:
            at = data.find(key, start, end)
            if at >= 0:
                self._next[key] = base + at

    def may_match(self, base: int, data: bytes) -> bool:
        """Return whether any object that starts in `data` could contain the keys."""
        reach = base + len(data) + _LARGEST
        return any(
            all(self._next[key] < reach or key in data for key in keys)
            for keys in self._alternatives
        )

    def matches(self, start: int) -> bool:
        """Return whether all wanted keys follow `start` within the maximum size of an object."""
        reach = start + _LARGEST
        return any(all(self._next[key] < reach for key in keys) for keys in self._alternatives)


def _chunks_backward(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of overlapping chunks of a file, last chunk first.

    Each chunk begins with the byte before its part of the file, so that a line which starts there
    is preceded by its newline. The file's first chunk begins with an added newline, at offset -1.
    """
    size = file.seek(0, 2)
    for start in range((size - 1) // _CHUNK * _CHUNK, -1, -_CHUNK):
        data = _read(file, max(0, start - 1), _CHUNK + _OVERLAP)
        yield start - 1, data if start else b"\n" + data


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)
