"""Make text from a worker safe to show: no control characters, no tricks, bounded."""

import unicodedata

# Cc: C0, C1 and DEL. Cf: bidi overrides and zero-width characters. Cs: lone surrogates.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
ELLIPSIS = "…"


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
