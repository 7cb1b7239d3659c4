"""Take secret values out of what a worker prints and writes, however they are spelt. Pure.

A value is found as it is, in base64 (wherever in a longer text it stands), in hex, URL-encoded and
as JSON writes it. Whoever wants to hide a value from us can: this is against accidents.
"""

import base64
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from pydantic import BaseModel

SHORTEST = 8
"""Bytes of a value: to take out anything shorter would take half the log out."""
_PIECE = 64
"""Bytes of a value that are looked for at once: a longer one is found piece by piece."""
_WORD = 8
_FEW = 64
_LONG = 2 * _WORD - 1
_START = 3
_BASE64_LINES = (64, 76)
"""Where `openssl base64` and `base64` break a line."""
_HEX_LINE = 60
"""Where `xxd -p` does."""
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEYS?(?:_|$)|_PWD$", re.IGNORECASE
)
_Model = TypeVar("_Model", bound=BaseModel)


def secret_variables(env: Mapping[str, str]) -> dict[str, bytes]:
    """Return those of some variables that are secret by their name, and passwords in URLs."""
    found = {}
    for name, value in env.items():
        secret = value if _SECRET_NAME.search(name) else url_password(value)
        if secret is not None:
            found[name] = secret.encode("utf-8", "surrogateescape")
    return found


def url_password(value: str) -> str | None:
    """Return the password in `scheme://user:password@host`."""
    try:
        return urlsplit(value).password if "://" in value else None
    except ValueError:
        return None


class Redactor:
    """Replaces values by `[redacted:NAME]`."""

    def __init__(self, *sources: Mapping[str, bytes]) -> None:
        """Learn values by name; those under `SHORTEST` bytes are left alone.

        Args:
            sources: Where two have the same name, both are learnt; of two names for a value the
                first is shown.
        """
        found: dict[bytes, str] = {}
        for name, value in (item for source in sources for item in source.items()):
            for spelling in _spellings(value.strip()):
                found.setdefault(spelling, name)
        self._names = found
        self._sorted = sorted(found)
        self._starts = frozenset(spelling[:_START] for spelling in found)
        self._longest = max(map(len, found), default=0)
        # Two ways to tell that a chunk is clean, many times faster than the expression can. Few
        # spellings are searched for one by one. Of many, the long ones are by their words: wherever
        # one stands, an aligned word lies in its first 15 bytes, and each word is looked at once.
        by_word = [s for s in found if len(s) >= _LONG] if len(found) > _FEW else []
        self._words = frozenset(
            int.from_bytes(spelling[shift : shift + _WORD], sys.byteorder)
            for spelling in by_word
            for shift in range(_WORD)
        )
        self._one_by_one = tuple(found.keys() - set(by_word))
        longest_first = sorted(found, key=len, reverse=True)
        self._expression = re.compile(b"|".join(map(re.escape, longest_first)))

    @property
    def has_values(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._names)

    @property
    def longest(self) -> int:
        """Bytes of the longest spelling of a value; 0 where there is nothing to look for."""
        return self._longest

    def stream(self) -> "RedactedStream":
        """Return a way to feed it one stream, chunk by chunk."""
        return RedactedStream(self)

    def certain(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what is certain of the data by now, clean, and the rest as it is.

        The rest may be the start of a value: one byte less than the longest spelling at most, and
        nothing as a rule.
        """
        if not self._names:
            return data, b""
        cut = len(data) - self._undecided(data)
        suspect = self._may_hold(data)
        for match in self._expression.finditer(data) if suspect and cut < len(data) else ():
            # A value that stands there in full is certain, also when its end may begin another.
            if match.start() < cut < match.end():
                cut = match.end()
        head = data[:cut]
        return (self.data(head) if suspect else head), data[cut:]

    def data(self, data: bytes) -> bytes:
        """Take the values out of some data."""
        if not data or not self._names:
            return data
        return self._expression.sub(lambda found: self._label(found[0]), data)

    def names_in(self, data: bytes) -> frozenset[str]:
        """Name the values that some data holds."""
        if not self._names or not self._may_hold(data):
            return frozenset()
        return frozenset(self._names[found] for found in self._expression.findall(data))

    def text(self, text: str) -> str:
        """Take the values out of a text."""
        if not self._names:
            return text
        return self.data(_encode(text)).decode("utf-8", "surrogatepass")

    def model(self, model: _Model) -> _Model:
        """Take the values out of every text in a model."""
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
        """Count the bytes at the end that more bytes could make a value of."""
        tail = data[-(self._longest - 1) :]
        for start in range(len(tail)):
            rest = tail[start : start + _START]
            if len(rest) < _START or rest in self._starts:
                rest = tail[start:]
                place = bisect_left(self._sorted, rest)
                # Of those that begin with `rest`, one that is `rest` itself is not undecided.
                for spelling in self._sorted[place : place + 2]:
                    if len(spelling) > len(rest) and spelling.startswith(rest):
                        return len(rest)
        return 0


class RedactedStream:
    """A stream that values are taken out of, wherever its chunks are cut."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what is certain by now."""
        clean, self._held = self._redactor.certain(self._held + chunk)
        return clean

    def flush(self) -> bytes:
        """Return what was held back; the stream has ended."""
        rest, self._held = self._redactor.data(self._held), b""
        return rest


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _spellings(value: bytes) -> set[bytes]:
    found = {spelling for piece in _pieces(value) for spelling in _spellings_of_piece(piece)}
    # A long value's base64 or hex comes in lines, which cut through the pieces' own.
    for encoded in _base64_forms(value, 0):
        for width in _BASE64_LINES:
            found |= set(_lines(encoded, width))
    for encoded in _hex_forms(value):
        found |= set(_lines(encoded, _HEX_LINE))
    return {spelling for spelling in found if len(spelling) >= SHORTEST}


def _pieces(value: bytes) -> Iterator[bytes]:
    """Cut a value at its line ends, and long lines into parts none of which is too short."""
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
    """Yield what is the same in every base64 text with the value after 3n + `before` bytes."""
    encoded = base64.b64encode(b"\0" * before + value).rstrip(b"=")
    first = (before * 8 + 5) // 6
    plain = encoded[first : (before + len(value)) * 8 // 6]
    # The last character may hold bits of what follows; of nothing and of a line's end, zeros.
    for form in {plain, encoded[first:]}:
        yield form
        yield form.translate(bytes.maketrans(b"+/", b"-_"))


def _hex_forms(value: bytes) -> tuple[bytes, bytes]:
    return value.hex().encode(), value.hex().upper().encode()


def _lines(encoded: bytes, width: int) -> Iterator[bytes]:
    if len(encoded) > width:
        for start in range(0, len(encoded), width):
            yield encoded[start : start + width]
