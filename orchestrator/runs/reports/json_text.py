"""Read only the wanted parts of a large JSON text, which may break off anywhere."""

import json
import re
from collections.abc import Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class JsonText:
    """A JSON text of which only the part is parsed that is asked for."""

    def __init__(self, text: str) -> None:
        """Begin before the first value of the text."""
        self._text = text
        self._at = 0

    def _next(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def value(self) -> Any:  # noqa: ANN401
        """Return the value that begins here, and pass it."""
        self._next()
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        return value

    def members(self) -> Iterator[str]:
        """Pass the object that begins here, and yield before each value its name.

        Nothing is yielded if another value begins here.
        """
        for _ in self._entries("{", "}"):
            key = self.value()
            if self._next() != ":":
                raise ValueError("a name without a value")
            self._at += 1
            before = self._at
            yield str(key)
            if self._at == before:
                self.value()

    def items(self) -> Iterator[None]:
        """Pass the array that begins here, and stop before each item."""
        for _ in self._entries("[", "]"):
            before = self._at
            yield
            if self._at == before:
                self.value()

    def _entries(self, begin: str, end: str) -> Iterator[None]:
        if self._next() != begin:
            self.value()
            return
        self._at += 1
        if self._next() == end:
            self._at += 1
            return
        while True:
            self._next()
            yield
            after = self._next()
            self._at += 1
            if after == end:
                return
            if after != ",":
                raise ValueError("the text breaks off")
