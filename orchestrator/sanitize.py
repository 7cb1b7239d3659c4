"""Make text from a worker safe to show: no control characters, no tricks, bounded."""

import re
import unicodedata

# Cc: C0, C1 and DEL. Cf: bidi overrides and zero-width characters. Cs: lone surrogates.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
ELLIPSIS = "…"
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def one_line(text: str, *, limit: int = 200) -> str:
    """Give `text` as one line of at most `limit` characters that cannot steer a terminal.

    Tabs and newlines become spaces; every other control, format or surrogate character becomes
    U+FFFD, so that what was there can be seen to have been there.
    """
    cut = text[: limit + 1].strip() if len(text) <= limit else text[: limit + 1]
    clean = "".join(_visible(character) for character in cut)
    return clean if len(clean) <= limit else clean[: limit - 1] + ELLIPSIS


def _visible(character: str) -> str:
    if character in "\t\n\r":
        return " "
    return "\ufffd" if unicodedata.category(character) in _HIDDEN else character


def lines(text: str) -> str:
    """Give all lines of `text`, tabs and indentation kept, such that they cannot steer a terminal.

    Colours are left out, and what a carriage return would overwrite becomes a line of its own;
    every other control, format or surrogate character becomes U+FFFD.
    """
    text = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_Visible())


class _Visible(dict[int, str]):
    """A table for `str.translate`, filled as characters come: logs may be huge."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = character if character in "\t\n" else _visible(character)
        return self[code]
