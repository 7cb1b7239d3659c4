"""Split a program's output into spans of text with the styles of its ANSI control sequences.

A span has CSS classes of a fixed set, and text without any control character. The classes select
colours of the page's palette, so that no output can be made unreadable or hidden.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from orchestrator.base.text.sanitize import SEQUENCE, lines

MOST_RUNS = 4000
"""Maximum number of spans of one text; what is before them has no colours."""
_COLOUR = re.compile(r"\x1b\[([0-9;:]{0,60})m")
_BLACK, _WHITE, _GREY, _BRIGHT_WHITE = 0, 7, 8, 15
_EXTENDED = {38: "front", 48: "back"}


class Run(NamedTuple):
    """A span of text with one style."""

    look: str
    """Names of CSS classes, separated by blanks; empty for plain text."""
    text: str


@dataclass(frozen=True)
class _Style:
    front: int | None = None
    """The text's colour, one of 16; None for the default colour."""
    back: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False

    @property
    def look(self) -> str:
        # On a coloured background, only the default colour of text can be read for certain.
        colour = f"f{self.front}" if self.front is not None and self.back is None else ""
        names = (
            colour,
            f"k{self.back % 8}" if self.back is not None else "",
            "bold" if self.bold else "",
            "dim" if self.dim and not colour and self.back is None else "",
            "italic" if self.italic else "",
            "underlined" if self.underlined else "",
        )
        return " ".join(name for name in names if name)


_PLAIN = _Style()
_SWITCHES: dict[int, dict[str, bool]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    4: {"underlined": True},
    21: {"underlined": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underlined": False},
}


def runs_of(text: str) -> tuple[Run, ...]:
    """Return a text as spans that are safe to show in a web page.

    The texts of the spans together are those of `orchestrator.base.text.sanitize.output_lines`.
    """
    if "\x1b" not in text:
        # protection: control-characters-in-logs-are-visible
        return (Run("", lines(text)),) if text else ()
    pieces = (piece for piece in _pieces(text) if piece.text)
    runs = tuple(
        Run(look, "".join(piece.text for piece in group))
        for look, group in groupby(pieces, key=lambda piece: piece.look)
    )
    # Readers look at the end of a log first.
    # protection: number-of-coloured-parts-has-limit
    plain, coloured = runs[:-MOST_RUNS], runs[-MOST_RUNS:]
    return (Run("", "".join(run.text for run in plain)), *coloured) if plain else coloured


def _pieces(text: str) -> Iterator[Run]:
    style, place, before = _PLAIN, 0, Run("", "")
    for found in (*SEQUENCE.finditer(text), None):
        part = text[place : found.start() if found else len(text)]
        if part:
            # A line may end with `\r`, a change of colours and `\n`.
            ends = part[0] == "\n" and before.text.endswith("\r")
            # protection: control-characters-in-coloured-logs-are-visible
            yield Run(before.look, lines(before.text[:-1] if ends else before.text))
            before = Run(style.look, part)
        if found:
            colour, place = _COLOUR.fullmatch(found[0]), found.end()
            style = _change(style, colour[1]) if colour else style
    yield Run(before.look, lines(before.text))


def _change(style: _Style, sequence: str) -> _Style:
    """Return the style after a control sequence such as `1;31`."""
    codes = sequence.split(";")
    while codes:
        first = codes.pop(0)
        if ":" in first:
            style = _extend(style, first.split(":"))
        elif _number(first) in _EXTENDED:
            size = {"5": 2, "2": 4}.get(codes[0] if codes else "", 1)
            style = _extend(style, [first, *codes[:size]])
            del codes[:size]
        else:
            style = _simple(style, _number(first))
    return style


def _simple(style: _Style, code: int) -> _Style:
    if code == 0:
        return _PLAIN
    if code in _SWITCHES:
        return replace(style, **_SWITCHES[code])
    tens, colour = divmod(code, 10)
    field = {3: "front", 9: "front", 4: "back", 10: "back"}.get(tens)
    if field is None or colour == 8:
        return style
    bright = 8 if tens in (9, 10) else 0
    chosen = None if colour == 9 else colour + bright
    return replace(style, **{field: chosen})  # type: ignore[arg-type]


def _extend(style: _Style, parts: Sequence[str]) -> _Style:
    field, kind = _EXTENDED.get(_number(parts[0])), parts[1:2]
    if field is None:
        return style
    if kind == ["5"] and len(parts) > 2:
        number = _number(parts[2])
        if number < 16:
            colour = number
        elif number > 231:
            colour = _nearest(*[8 + 10 * (number - 232)] * 3)
        else:
            red, rest = divmod(number - 16, 36)
            green, blue = divmod(rest, 6)
            colour = _nearest(*(55 + 40 * level if level else 0 for level in (red, green, blue)))
    elif kind == ["2"] and len(parts) > 4:
        colour = _nearest(*(_number(part) for part in parts[-3:]))
    else:
        return style
    return replace(style, **{field: colour})  # type: ignore[arg-type]


def _number(text: str) -> int:
    return int(text[:9] or 0)


def _nearest(red: int, green: int, blue: int) -> int:
    """Return the colour of the palette that is nearest to an RGB colour."""
    low, high = min(red, green, blue), max(red, green, blue)
    if high - low < 48:
        greys = ((40, _BLACK), (140, _GREY), (215, _WHITE))
        return next((colour for limit, colour in greys if high < limit), _BRIGHT_WHITE)
    middle = (low + high) / 2
    return sum(bit for bit, value in ((1, red), (2, green), (4, blue)) if value > middle)
