"""Redact secret values in the output and files of workers, in common encodings.

A value is found as plain text, base64 (at any offset of a longer text), hex, URL-encoded and as a
JSON string, also if escape sequences of terminals, such as colours, are in between: what prints the
text leaves them out. This prevents accidents; a hostile worker can always hide a value by other
encodings.
"""

import base64
import json
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import BaseModel

from orchestrator.base.text.sanitize import (
    ENCODED_SEQUENCE,
    ENCODED_UNFINISHED,
    LONGEST_SEQUENCE,
)

SHORTEST = 8
"""Minimum size in bytes of a value that is redacted; redacting shorter values would make logs
unreadable.
"""
_PIECE = 64
"""Maximum size in bytes of a value that is searched for as a whole; longer values are searched for
in pieces.
"""
_WORD = 8
_FEW = 64
_LONG = 2 * _WORD - 1
_START = 3
_ALIKE = 16
"""Minimum number of equal first bytes of encoded values that are searched for together."""
_BASE64_LINES = (64, 76)
"""Lengths of the lines that `openssl base64` and `base64` print."""
_HEX_LINE = 60
"""Length of the lines that `xxd -p` prints."""
_ESCAPE = b"\x1b"
_MOST_BETWEEN = 64 * 1024
"""Maximum number of bytes of escape sequences after which a value that began is not awaited."""
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEYS?(?:_|$)|_PWD$", re.IGNORECASE
)
_Model = TypeVar("_Model", bound=BaseModel)


def secret_variables(env: Mapping[str, str]) -> dict[str, bytes]:
    """Return variables whose names indicate a secret, and passwords in variables with a URL."""
    found = {}
    for name, value in env.items():
        # protection: variables-with-secret-names-are-redacted
        secret = value if _SECRET_NAME.search(name) else url_password(value)
        if secret is not None:
            found[name] = secret.encode("utf-8", "surrogateescape")
    return found


def url_password(value: str) -> str | None:
    """Return the password in `scheme://user:password@host`; None if there is none."""
    try:
        # protection: passwords-in-urls-are-redacted
        return urlsplit(value).password if "://" in value else None
    except ValueError:
        return None


class Redactor:
    """Replaces secret values by `[redacted:NAME]`."""

    def __init__(self, *sources: Mapping[str, bytes]) -> None:
        """Create a redactor for values by name; values shorter than `SHORTEST` bytes are ignored.

        Args:
            sources: Mappings of names to values. All values of a name are redacted; a value with
                several names is shown under the first name.
        """
        names: dict[bytes, str] = {}
        for name, value in (item for source in sources for item in source.items()):
            for spelling in _spellings(value.strip()):
                names.setdefault(spelling, name)
        self._names = names
        self._sorted = sorted(names)
        self._starts = frozenset(spelling[:_START] for spelling in names)
        self._longest = max(map(len, names), default=0)
        # Two fast checks whether a chunk contains no values, before the slow regular expression.
        # Few spellings are searched one by one. Of many spellings, long ones are found by an
        # index of words: each occurrence has an aligned word in its first 15 bytes, and each word
        # is looked up once.
        by_word = [s for s in names if len(s) >= _LONG] if len(names) > _FEW else []
        self._words = frozenset(
            int.from_bytes(spelling[shift : shift + _WORD], sys.byteorder)
            for spelling in by_word
            for shift in range(_WORD)
        )
        self._one_by_one = _probes(names.keys() - set(by_word))
        # protection: longest-value-is-redacted-first
        longest_first = sorted(names, key=len, reverse=True)
        self._expression = re.compile(b"|".join(map(re.escape, longest_first)))

    @property
    def has_values(self) -> bool:
        """Return whether there are any values to redact."""
        return bool(self._names)

    @property
    def longest(self) -> int:
        """Return the length in bytes of the longest encoded value; 0 if there are no values."""
        return self._longest

    def stream(self) -> "RedactedStream":
        """Return an object that redacts a stream of data chunk by chunk."""
        return RedactedStream(self)

    def certain(self, data: bytes) -> tuple[bytes, bytes]:
        """Split data into a redacted part, and a rest that may be the beginning of a value.

        The rest can be decided only with more data. Without escape sequences, it is shorter than
        the longest encoded value, and usually empty.
        """
        if not self._names:
            return data, b""
        views = self._views(data)
        # protection: values-across-chunks-are-redacted
        cut = min([len(data) - self._count_undecided(data), *map(self._begun, views)])
        if len(data) - cut > self._longest + _MOST_BETWEEN:
            cut = len(data)
        suspect = self._may_hold(data) or any(self._may_hold(view.text) for view in views)
        for start, end in self._spans(data, views) if suspect and cut < len(data) else ():
            # A complete value is redacted now, even if its end may also be the start of another
            # value.
            if start < cut < end:
                cut = end
        head = data[:cut]
        return (self.data(head) if suspect else head), data[cut:]

    def data(self, data: bytes) -> bytes:
        """Return the data with all values redacted."""
        if not data or not self._names:
            return data
        # protection: values-are-redacted
        data = self._expression.sub(lambda match: self._label(match[0]), data)
        for view in self._views(data):
            parts, last = [], 0
            for match in self._expression.finditer(view.text):
                start, end = view.span(match)
                # The sequences are kept, so that what follows has its colour.
                between = b"".join(ENCODED_SEQUENCE.findall(data[start:end]))
                parts += [data[last:start], self._label(match[0]), between]
                last = end
            data = b"".join([*parts, data[last:]])
        return data

    def names_in(self, data: bytes) -> frozenset[str]:
        """Return the names of the values that occur in data."""
        texts = [data, *(view.text for view in self._views(data))]
        found = (spelling for text in texts if self._names and self._may_hold(text)
                 for spelling in self._expression.findall(text))  # fmt: skip
        return frozenset(self._names[spelling] for spelling in found)

    def _views(self, data: bytes) -> "list[_WithoutSequences]":
        """Return the data without escape sequences; nothing if it has none."""
        # protection: values-between-escape-sequences-are-redacted
        return [_WithoutSequences(data)] if self._names and _ESCAPE in data else []

    def _begun(self, view: "_WithoutSequences") -> int:
        """Return where in the data a value begins that more data may complete."""
        begun = self._count_undecided(view.text)
        return view.origin(len(view.text) - begun) if begun else view.length

    def _spans(self, data: bytes, views: "list[_WithoutSequences]") -> Iterator[tuple[int, int]]:
        yield from (match.span() for match in self._expression.finditer(data))
        for view in views:
            yield from map(view.span, self._expression.finditer(view.text))

    def text(self, text: str) -> str:
        """Return the text with all values redacted."""
        if not self._names:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def model(self, model: _Model) -> _Model:
        """Return a copy of a Pydantic model with all values redacted in its strings."""
        if not self._names:
            return model
        fields = {name: getattr(model, name) for name in type(model).model_fields}
        clean = {name: self._clean(value) for name, value in fields.items()}
        return model.model_copy(update={n: v for n, v in clean.items() if v is not fields[n]})

    def _clean(self, value: object) -> object:
        if type(value) is str:
            return self.text(value)
        if isinstance(value, BaseModel):
            return self.model(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._clean(item) for item in value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(item) for key, item in value.items()}
        return value

    def _label(self, spelling: bytes) -> bytes:
        return f"[redacted:{self._names[spelling]}]".encode()

    def _may_hold(self, data: bytes) -> bool:
        if any(spelling in data for spelling in self._one_by_one):
            return True
        whole = memoryview(data)[: len(data) // _WORD * _WORD]
        return bool(self._words) and not self._words.isdisjoint(whole.cast("Q"))

    def _count_undecided(self, data: bytes) -> int:
        """Return how many bytes at the end of the data may be the beginning of a value."""
        tail = data[-(self._longest - 1) :]
        for start in range(len(tail)):
            rest = tail[start : start + _START]
            if len(rest) < _START or rest in self._starts:
                rest = tail[start:]
                place = bisect_left(self._sorted, rest)
                # A spelling that equals `rest` is complete, not undecided.
                for spelling in self._sorted[place : place + 2]:
                    if len(spelling) > len(rest) and spelling.startswith(rest):
                        return len(rest)
        return 0


class _WithoutSequences:
    """Data without its escape sequences, and where its bytes were."""

    def __init__(self, data: bytes) -> None:
        self.length = len(data)
        unfinished = ENCODED_UNFINISHED.search(data, max(0, len(data) - LONGEST_SEQUENCE))
        self._data = data if unfinished is None else data[: unfinished.start()]
        self.text = ENCODED_SEQUENCE.sub(b"", self._data)

    @cached_property
    def _removals(self) -> tuple[list[int], list[int]]:
        """Where in the text sequences were, and how many bytes were removed up to there."""
        places, sums, removed = [], [], 0
        for match in ENCODED_SEQUENCE.finditer(self._data):
            places.append(match.start() - removed)
            removed += len(match[0])
            sums.append(removed)
        return places, sums

    def origin(self, place: int) -> int:
        """Return where in the data a byte of the text was."""
        places, sums = self._removals
        before = bisect_right(places, place)
        return place + (sums[before - 1] if before else 0)

    def span(self, match: "re.Match[bytes]") -> tuple[int, int]:
        """Return where in the data a part of the text begins and ends."""
        return self.origin(match.start()), self.origin(match.end() - 1) + 1


class RedactedStream:
    """Redacts a stream of data, wherever its chunks begin and end."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk, and return the redacted data that is now complete."""
        clean, self._held = self._redactor.certain(self._held + chunk)
        return clean

    def flush(self) -> bytes:
        """Return the remaining data after the end of the stream."""
        rest, self._held = self._redactor.data(self._held), b""
        return rest


def _probes(spellings: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the byte strings to search for: each encoded value begins with one of the strings.

    All data is searched for each string, so values that begin alike share a string.
    """
    found: list[bytes] = []
    for spelling in sorted(spellings):
        if found and _count_alike(found[-1], spelling) >= _ALIKE:
            found[-1] = spelling[: _count_alike(found[-1], spelling)]
        else:
            found.append(spelling)
    return tuple(found)


def _count_alike(value: bytes, other: bytes) -> int:
    """Return the number of bytes with which both values begin."""
    pairs = enumerate(zip(value, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(value), len(other)))


def _spellings(value: bytes) -> set[bytes]:
    spellings = {form for piece in _pieces(value) for form in _spellings_of_piece(piece)}
    # Tools wrap long base64 and hex texts at line lengths that differ from the pieces' lengths.
    for encoded in _base64_forms(value, 0):
        for width in _BASE64_LINES:
            # protection: values-in-wrapped-base64-are-redacted
            spellings |= set(_lines(encoded, width))
    for encoded in _hex_forms(value):
        # protection: values-in-wrapped-hex-are-redacted
        spellings |= set(_lines(encoded, _HEX_LINE))
    return {spelling for spelling in spellings if len(spelling) >= SHORTEST}


def _pieces(value: bytes) -> Iterator[bytes]:
    """Yield the lines of a value, long lines in several pieces; none is shorter than `SHORTEST`."""
    for line in value.splitlines():
        rest = line.strip()
        while len(rest) >= _PIECE + SHORTEST:
            yield rest[:_PIECE]
            rest = rest[_PIECE:]
        if len(rest) >= SHORTEST:
            yield rest


def _spellings_of_piece(piece: bytes) -> Iterator[bytes]:
    yield piece
    # protection: values-at-any-base64-offset-are-redacted
    for before in range(3):
        # protection: values-in-base64-are-redacted
        yield from _base64_forms(piece, before)
    # protection: values-in-hex-are-redacted
    yield from _hex_forms(piece)
    for quoted in (quote(piece), quote(piece, safe=""), quote_plus(piece)):
        # protection: url-encoded-values-are-redacted
        yield quoted.encode()
        # protection: lower-case-url-encoded-values-are-redacted
        yield re.sub("%..", lambda code: code[0].lower(), quoted).encode()
    text = piece.decode("utf-8", "surrogateescape")
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        # protection: json-escaped-values-are-redacted
        yield escaped.encode("utf-8", "surrogateescape")
        # protection: json-with-escaped-slashes-is-redacted
        yield escaped.replace("/", "\\/").encode("utf-8", "surrogateescape")


def _base64_forms(value: bytes, before: int) -> Iterator[bytes]:
    """Yield the base64 forms of a value that starts `before` bytes after a group of 3 bytes."""
    encoded = base64.b64encode(b"\0" * before + value).rstrip(b"=")
    first = (before * 8 + 5) // 6
    plain = encoded[first : (before + len(value)) * 8 // 6]
    # The last character includes bits of the next byte; at the end of the text they are zero.
    # protection: last-base64-character-is-redacted
    for form in {plain, encoded[first:]}:
        yield form
        # protection: values-in-url-safe-base64-are-redacted
        yield form.translate(bytes.maketrans(b"+/", b"-_"))


def _hex_forms(value: bytes) -> tuple[bytes, bytes]:
    # protection: values-in-upper-case-hex-are-redacted
    return value.hex().encode(), value.hex().upper().encode()


def _lines(encoded: bytes, width: int) -> Iterator[bytes]:
    if len(encoded) > width:
        for start in range(0, len(encoded), width):
            yield encoded[start : start + width]
