"""Draw a workflow in a terminal, from left to right, with box-drawing characters.

Where two lines cross without being connected, the horizontal line is interrupted: `─│─`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from orchestrator.workflow.drawing.graph import TIMES, Shape, shape_of
from orchestrator.workflow.drawing.layout import Item, Layout, lay_out
from orchestrator.workflow.drawing.pages import Band, Point, bands
from orchestrator.workflow.model import Workflow

_NORTH, _EAST, _SOUTH, _WEST = 1, 2, 4, 8
_UPRIGHT, _LEVEL = _NORTH | _SOUTH, _EAST | _WEST
_LINES = {
    _EAST: "─",
    _WEST: "─",
    _LEVEL: "─",
    _UPRIGHT: "│",
    _EAST | _SOUTH: "┌",
    _WEST | _SOUTH: "┐",
    _NORTH | _EAST: "└",
    _NORTH | _WEST: "┘",
    _UPRIGHT | _EAST: "├",
    _UPRIGHT | _WEST: "┤",
    _LEVEL | _SOUTH: "┬",
    _LEVEL | _NORTH: "┴",
    _UPRIGHT | _LEVEL: "┼",
}
_ARROW = "►"
_ASCII = str.maketrans({**dict.fromkeys("┌┐└┘├┤┬┴┼", "+"), "─": "-", "│": "|", "►": ">"})
_ASCII_TEXT = str.maketrans({"…": "~", TIMES: "x"})
LINES = "".join({*_LINES.values(), _ARROW, "…", TIMES})
"""All characters of a drawing that are not ASCII."""
_LENGTHS = (24, 16, 12)
"""Maximum lengths of names that are tried, one after the other, before the drawing is wrapped."""
_STEP = 8
"""Number of characters by which the width is reduced until a wrapped drawing fits."""


def picture(workflow: Workflow, *, width: int | None = None, ascii_only: bool = False) -> str:
    """Draw a workflow as text.

    Args:
        workflow: The workflow to draw.
        width: Columns of the terminal. Names are shortened and then the drawing is wrapped until
            it fits; if it cannot fit, the tasks are listed instead. Default: unlimited.
        ascii_only: Draw with `-`, `|`, `+` and `>` only.
    """
    shape = shape_of(workflow)
    lines = _fitting(shape, width)
    text = "\n".join(lines)
    return text.translate(_ASCII).translate(_ASCII_TEXT) if ascii_only else text


def _fitting(shape: Shape, width: int | None) -> list[str]:
    full = [node.name for node in shape.nodes]
    whole = lay_out(shape)
    if width is None:
        return _draw(whole, full)
    for names in (full, *(_cut(full, length) for length in _LENGTHS)):
        if all(band.width <= width for band in _bands(whole, names)):
            return [*_draw(whole, names), *_legend(full, names)]
    for length in _LENGTHS:
        names = _cut(full, length)
        broken = _broken(shape, whole, names, width)
        if broken is not None:
            return [*_draw(broken, names), *_legend(full, names)]
    return _listing(shape)


def _cut(names: Sequence[str], length: int) -> list[str]:
    """Shorten long names in the middle, so that different names stay different."""
    shortened: list[str] = []
    for number, name in enumerate(names, 1):
        short = name
        if len(name) > length:
            keep = length - 1
            short = f"{name[: keep - keep // 2]}…{name[-(keep // 2) :]}"
        if short in shortened or (short != name and short in names):
            mark = f"…{number}"
            short = name[: length - len(mark)] + mark
        shortened.append(short)
    return shortened


def _legend(full: Sequence[str], names: Sequence[str]) -> list[str]:
    cut = [(short, name) for short, name in zip(names, full, strict=True) if short != name]
    widest = max((len(short) for short, _ in cut), default=0)
    return [""] * bool(cut) + [f"{short:{widest}}  {name}" for short, name in cut]


def _broken(shape: Shape, whole: Layout, names: Sequence[str], width: int) -> Layout | None:
    """Return a layout that is wrapped to fit the width; None if even one column is too wide."""
    widths = [
        band.places[n].port - band.places[n].arrow + 2 * whole.gaps[n].count + 2
        for band in _bands(whole, names)
        for n in range(len(whole.gaps))
    ]
    for room in range(width, -_STEP, -_STEP):
        wrapped = lay_out(shape, _breaks(widths, room))
        if all(band.width <= width for band in _bands(wrapped, names)):
            return wrapped
    return None


def _breaks(widths: Sequence[int], room: int) -> Iterator[int]:
    used = 0
    for place, width in enumerate(widths):
        if used and used + width > room:
            yield place
            used = 0
        used += width


def _bands(layout: Layout, names: Sequence[str]) -> Sequence[Band]:
    connectors = _connectors(layout)

    def label(place: int, item: Item) -> str:
        return names[item.node] if item.node is not None else connectors.get((place, item.row), "")

    return bands(layout, label)


def _connectors(layout: Layout) -> Mapping[tuple[int, int], str]:
    """Return a number for each line that is cut where the drawing is wrapped, by column and row."""
    cut = [(place, item.row) for place in sorted(layout.breaks) for item in layout.columns[place]]
    return {where: f"({number})" for number, where in enumerate(cut, 1)}


def _listing(shape: Shape) -> list[str]:
    lines = []
    for node in shape.nodes:
        after = ", ".join(shape.nodes[number].name for number in node.after)
        lines.append(f"{node.name} after {after}" if after else node.name)
    return lines


def _draw(layout: Layout, names: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for band in _bands(layout, names):
        lines += [""] * bool(lines) + _Canvas(band).lines()
    return lines


class _Canvas:
    """A grid of characters that records which lines go through each cell."""

    def __init__(self, band: Band) -> None:
        self._cells: dict[Point, dict[int | None, int]] = {}
        self._text: dict[Point, str] = {}
        for number, place in band.places.items():
            for item in place.column:
                self._write((place.text, item.row), place.label(item))
                if not place.is_first and place.label(item):
                    self._write((place.arrow, item.row), _ARROW)
                if not place.is_last:
                    self._stems(band, number, item)
            for net, item, end in band.runs(number):
                row = item.row + item.outlets.index(net)
                self._line(band.run(number, net, row, end), net)

    def _stems(self, band: Band, number: int, item: Item) -> None:
        for net in item.outlets:
            points = band.stem(number, item, net)
            self._line(points, None)
            self._add(points[0], None, _WEST)

    def _write(self, where: Point, text: str) -> None:
        for number, character in enumerate(text):
            self._text[where[0] + number, where[1]] = character

    def _line(self, points: Sequence[Point], net: int | None) -> None:
        for (x, y), (end, bottom) in pairwise(points):
            for step in range(min(x, end), max(x, end)):
                self._add((step, y), net, _EAST)
                self._add((step + 1, y), net, _WEST)
            for step in range(min(y, bottom), max(y, bottom)):
                self._add((end, step), net, _SOUTH)
                self._add((end, step + 1), net, _NORTH)

    def _add(self, where: Point, net: int | None, arm: int) -> None:
        nets = self._cells.setdefault(where, {})
        nets[net] = nets.get(net, 0) | arm

    def lines(self) -> list[str]:
        """Return the drawing as lines of text, without rows where only vertical lines continue."""
        drawn = {where: _character(nets) for where, nets in self._cells.items()} | self._text
        rows: dict[int, dict[int, str]] = {}
        for (x, y), character in drawn.items():
            rows.setdefault(y, {})[x] = character
        return [
            "".join(row.get(x, " ") for x in range(max(row) + 1)).rstrip()
            for _, row in sorted(rows.items())
            if set(row.values()) - {"│", " "}
        ]


def _character(nets: Mapping[int | None, int]) -> str:
    if len(nets) > 1 and None not in nets:
        if sorted(nets.values()) != [_UPRIGHT, _LEVEL]:
            raise AssertionError("the drawing has lines of two different nets that meet")
        return _LINES[_UPRIGHT]
    arms = 0
    for own in nets.values():
        arms |= own
    return _LINES[arms]
