"""Redact secret values in the output and files of workers, in common encodings.

A value is found as plain text, base64 (at any offset of a longer text), hex, URL-encoded and as a
JSON string. This prevents accidents; a hostile worker can always hide a value by other encodings.
"""

import base64
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import BaseModel

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
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEYS?(?:_|$)|_PWD$", re.IGNORECASE
)
_Model = TypeVar("_Model", bound=BaseModel)


def secret_variables(env: Mapping[str, str]) -> dict[str, bytes]:
    """Return variables whose names indicate a secret, and passwords in variables with a URL."""
    found = {}
    for name, value in env.items():
        secret = value if _SECRET_NAME.search(name) else url_password(value)
        if secret is not None:
            found[name] = secret.encode("utf-8", "surrogateescape")
    return found


def url_password(value: str) -> str | None:
    """Return the password in `scheme://user:password@host`; None if there is none."""
    try:
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

        The rest can be decided only with more data. It is shorter than the longest encoded value,
        and usually empty.
        """
        if not self._names:
            return data, b""
        cut = len(data) - self._undecided(data)
        suspect = self._may_hold(data)
        for match in self._expression.finditer(data) if suspect and cut < len(data) else ():
            # A complete value is redacted now, even if its end may also be the start of another
            # value.
            if match.start() < cut < match.end():
                cut = match.end()
        head = data[:cut]
        return (self.data(head) if suspect else head), data[cut:]

    def data(self, data: bytes) -> bytes:
        """Return the data with all values redacted."""
        if not data or not self._names:
            return data
        return self._expression.sub(lambda match: self._label(match[0]), data)

    def names_in(self, data: bytes) -> frozenset[str]:
        """Return the names of the values that occur in data."""
        if not self._names or not self._may_hold(data):
            return frozenset()
        return frozenset(self._names[spelling] for spelling in self._expression.findall(data))

    def text(self, text: str) -> str:
        """Return the text with all values redacted."""
        if not self._names:
            return text
        return self.data(_encode(text)).decode("utf-8", "surrogatepass")

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

    def _undecided(self, data: bytes) -> int:
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


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _probes(spellings: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the byte strings to search for: each encoded value begins with one of the strings.

    All data is searched for each string, so values that begin alike share a string.
    """
    found: list[bytes] = []
    for spelling in sorted(spellings):
        if found and _alike(found[-1], spelling) >= _ALIKE:
            found[-1] = spelling[: _alike(found[-1], spelling)]
        else:
            found.append(spelling)
    return tuple(found)


def _alike(one: bytes, other: bytes) -> int:
    """Return the number of bytes with which both values begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _spellings(value: bytes) -> set[bytes]:
    spellings = {form for piece in _pieces(value) for form in _spellings_of_piece(piece)}
    # Tools wrap long base64 and hex texts at line lengths that differ from the pieces' lengths.
    for encoded in _base64_forms(value, 0):
        for width in _BASE64_LINES:
            spellings |= set(_lines(encoded, width))
    for encoded in _hex_forms(value):
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
    for before in range(3):
        yield from _base64_forms(piece, before)
    yield from _hex_forms(piece)
    for quoted in (quote(piece), quote(piece, safe=""), quote_plus(piece)):
        yield quoted.encode()
        yield re.sub("%..", lambda code: code[0].lower(), quoted).encode()
    text = piece.decode("utf-8", "surrogateescape")
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield escaped.encode("utf-8", "surrogateescape")
        yield escaped.replace("/", "\\/").encode("utf-8", "surrogateescape")


def _base64_forms(value: bytes, before: int) -> Iterator[bytes]:
    """Yield the base64 forms of a value that starts `before` bytes after a group of 3 bytes."""
    encoded = base64.b64encode(b"\0" * before + value).rstrip(b"=")
    first = (before * 8 + 5) // 6
    plain = encoded[first : (before + len(value)) * 8 // 6]
    # The last character includes bits of the next byte; at the end of the text they are zero.
    for form in {plain, encoded[first:]}:
        yield form
        yield form.translate(bytes.maketrans(b"+/", b"-_"))


def _hex_forms(value: bytes) -> tuple[bytes, bytes]:
    return value.hex().encode(), value.hex().upper().encode()


def _lines(encoded: bytes, width: int) -> Iterator[bytes]:
    if len(encoded) > width:
        for start in range(0, len(encoded), width):
            yield encoded[start : start + width]
