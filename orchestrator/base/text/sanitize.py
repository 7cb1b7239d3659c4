"""Make text from workers safe to print: no control or invisible characters, bounded length."""

import re
import unicodedata

# Cc: C0, C1 and DEL. Cf: bidi overrides and zero-width characters. Cs: lone surrogates.
# protection: hidden-characters-are-replaced
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
ELLIPSIS = "…"
# Other characters that readers cannot see but models can read: `Default_Ignorable_Code_Point` of
# the Unicode Character Database, and letters that look like blanks.
_UNSEEN = frozenset(
    {
        *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0, 0x16FE4, 0x1D159),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xFFF0, 0xFFF9),
        *range(0xE0000, 0xE1000),
    }
)
# A variation selector after a character with an emoji form; only the selector is removed.
_SELECTED = re.compile(
    "([\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]|[0-9#*](?=\ufe0f\u20e3))[\ufe0e\ufe0f]"
)
_NOT_PLAIN = re.compile(r"[^ -~]")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# ECMA-48: control sequences (colours, movements), strings with their terminator (titles, links,
# device commands), and short escapes (character sets). No sequence contains the end of a line.
SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]{0,200}[ -/]{0,9}[@-~]"
    r"|[\]PX^_][^\x07\x1b\r\n]{0,4000}(?:\x07|\x1b\\)"
    r"|[ -/]{0,4}[0-OQ-WYZ\\`-~])"
)
"""Matches an escape sequence of terminals."""
ENCODED_SEQUENCE = re.compile(SEQUENCE.pattern.encode())
"""The same in encoded text."""
_UNFINISHED = r"\x1b(?:\[[0-?]{0,200}[ -/]{0,9}|[\]PX^_][^\x07\x1b\r\n]{0,4000}\x1b?|[ -/]{0,4})?"
_BEGUN = re.compile(rf"(?:\r|{_UNFINISHED})\Z")
ENCODED_UNFINISHED = re.compile(rf"{_UNFINISHED}\Z".encode())
"""Matches an escape sequence at the end of encoded text that may be incomplete."""
LONGEST_SEQUENCE = 4200
"""Maximum length of an escape sequence, or more."""


def one_line(text: str, *, limit: int = 200) -> str:
    """Return `text` as one line of at most `limit` characters, safe to print in a terminal.

    Tabs and newlines become spaces. Every other control, format, surrogate or invisible character
    becomes U+FFFD, so that its presence stays visible. Variation selectors after emojis are
    removed.
    """
    # Removal halves the text at most, so a prefix of twice the length is long enough.
    text = _SELECTED.sub(r"\1", text[: 2 * (limit + 1)])
    cut = text[: limit + 1].strip() if len(text) <= limit else text[: limit + 1]
    clean = _NOT_PLAIN.sub(lambda found: _visible(found[0]), cut)
    # protection: length-of-lines-limited
    return clean if len(clean) <= limit else clean[: limit - 1] + ELLIPSIS


def output_line(text: str, *, limit: int = 200) -> str:
    """Return a program's output as `one_line`, without escape sequences of terminals.

    A terminal would not show the sequences either. Names and source code are shown by `one_line`
    and `lines`, because a reader must see that they contain sequences.
    """
    # Sequences do not count for the limit, but only so much of a long text is read.
    part = text[: 16 * (limit + 256)]
    part = part if len(part) == len(text) else part[: begun_sequence(part)]
    return one_line(without_sequences(part).strip(), limit=limit)


def output_lines(text: str) -> str:
    """Return a program's output as `lines`, without escape sequences of terminals."""
    return _visible_lines(without_sequences(text))


def without_sequences(text: str) -> str:
    """Return `text` without escape sequences of terminals, such as colours and links."""
    return SEQUENCE.sub("", text) if "\x1b" in text else text


def last_output_line(text: str, *, limit: int = 200) -> str:
    r"""Return the last line of a program's output that is not blank, as `output_line`.

    Of a line that was overwritten, its last content is returned. Lines that consist of escape
    sequences are blank. The result is empty if all lines are blank.
    """
    shown = re.split(r"[\r\n]", without_sequences(text))
    return output_line(next(filter(None, map(str.strip, reversed(shown))), ""), limit=limit)


def without_sequences_in(data: bytes) -> bytes:
    """Return encoded text as `without_sequences`, for searches in large files."""
    return ENCODED_SEQUENCE.sub(b"", data) if b"\x1b" in data else data


def begun_sequence(text: str) -> int:
    """Return where the incomplete escape sequence or line end at the end of `text` begins."""
    found = _BEGUN.search(text)
    return found.start() if found else len(text)


def _visible(character: str) -> str:
    # protection: line-ends-are-normalised
    if character in "\t\n\r":
        return " "
    # protection: invisible-letters-are-replaced
    hidden = ord(character) in _UNSEEN or unicodedata.category(character) in _HIDDEN
    return "\ufffd" if hidden else character


def is_text(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8.

    In arguments, variables and paths, Python represents invalid bytes by lone surrogates.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def lines(text: str) -> str:
    """Return all lines of `text`, safe to print in a terminal; tabs and indentation are kept.

    Colours are removed, and a carriage return starts a new line. Every other control, format,
    surrogate or invisible character becomes U+FFFD. Variation selectors after emojis are removed.
    """
    return _visible_lines(_COLOUR.sub("", text))


def _visible_lines(text: str) -> str:
    text = _SELECTED.sub(r"\1", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.translate(_Visible())


class _Visible(dict[int, str]):
    """Table for `str.translate` that computes each character's replacement at its first use."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = character if character in "\t\n" else _visible(character)
        return self[code]
