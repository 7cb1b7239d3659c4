"""Convert a workflow to an SVG picture without scripts or external resources."""

from collections.abc import Callable, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from orchestrator.text.sanitize import one_line
from orchestrator.workflow.drawing.graph import Node, Shape, shape_of
from orchestrator.workflow.drawing.layout import Item, lay_out
from orchestrator.workflow.drawing.pages import Band
from orchestrator.workflow.model import Workflow

_WIDTH, _HEIGHT = 8, 32
"""Width of a character and height of a row, in pixels."""
_BOX = 24
_MARGIN = 16
_FONT = 13
_TITLE = 400
_ENDS = frozenset({0xFFFE, 0xFFFF})
"""Lower 16 bits of the last two code points of each Unicode plane; XML must not contain them."""

Point = tuple[float, float]


def svg(workflow: Workflow, *, look: Callable[[Node], str] | None = None) -> str:
    """Return a workflow as an SVG document.

    Args:
        workflow: The workflow.
        look: Function that returns the CSS class of a node. Default: nodes have no class.
    """
    return _Drawing(workflow.name, shape_of(workflow), look).text()


class _Drawing:
    def __init__(self, name: str, shape: Shape, look: Callable[[Node], str] | None) -> None:
        layout = lay_out(shape)
        self._look = look
        self._name = name
        self._shape = shape
        self._band = Band(layout, self._label, 0, len(layout.columns) - 1)
        self._places = {
            item.node: (number, item)
            for number, column in enumerate(layout.columns)
            for item in column
            if item.node is not None
        }
        rows = {
            item.row + n for column in layout.columns for item in column for n in range(item.height)
        }
        self._rows = {row: number for number, row in enumerate(sorted(rows))}

    def _label(self, place: int, item: Item) -> str:
        del place
        return "" if item.node is None else self._shape.nodes[item.node].name

    def text(self) -> str:
        width = (self._band.width + 2) * _WIDTH + 2 * _MARGIN
        height = len(self._rows) * _HEIGHT + 2 * _MARGIN
        return "\n".join(
            (
                '<?xml version="1.0" encoding="UTF-8"?>',
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" font-family="monospace" '
                f'font-size="{_FONT}">',
                f"<title>{_text(self._name)}</title>",
                '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
                'markerHeight="8" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>',
                f'<rect width="{width}" height="{height}" fill="white"/>',
                '<g fill="none" stroke="black" marker-end="url(#arrow)">',
                *self._edges(),
                "</g>",
                *(f'<circle cx="{x:g}" cy="{y:g}" r="3"/>' for x, y in self._joints()),
                *(self._node(number, node) for number, node in enumerate(self._shape.nodes)),
                "</svg>",
            )
        )

    def _edges(self) -> Iterator[str]:
        for before, after in self._shape.edges:
            first, last = self._shape.nodes[before].name, self._shape.nodes[after].name
            points = " L ".join(f"{x:g} {y:g}" for x, y in self._route(before, after))
            yield (
                f"<path data-from={_quoted(first)} data-to={_quoted(last)} "
                f'd="M {points}"><title>{_text(f"{first} → {last}")}</title></path>'
            )

    def _route(self, before: int, after: int) -> Iterator[Point]:
        place, item = self._places[before]
        last, end = self._places[after]
        net = end.inlet
        if net is None:
            raise AssertionError("the drawing has an edge to a node without an inlet")
        x, y, width, height = self._box(before)
        yield x + width, y + height / 2
        row = item.row + item.outlets.index(net)
        yield from (self._at(*point) for point in self._band.stem(place, item, net)[1:])
        while place < last:
            item = next(
                lane for lane in self._band.places[place + 1].column if _is_on(lane, net, end)
            )
            yield from (self._at(*point) for point in self._band.run(place, net, row, item)[1:-1])
            place, row = place + 1, item.row
        x, y, _, height = self._box(after)
        yield x, y + height / 2

    def _joints(self) -> Iterator[Point]:
        """Yield the points where lines of the same net meet, which are drawn as dots."""
        for place in range(self._band.last):
            ports: dict[int, list[tuple[str, int]]] = {}
            for net, item, end in self._band.runs(place):
                begins = ("west", item.row + item.outlets.index(net))
                ports.setdefault(net, []).extend((begins, ("east", end.row)))
            for net, mine in ports.items():
                turn = self._band.track(place, net)
                if turn is not None:
                    yield from (self._at(turn, row) for row in _joints(mine))

    def _at(self, column: float, row: int) -> Point:
        return (
            _MARGIN + (column + 1) * _WIDTH,
            _MARGIN + self._rows[row] * _HEIGHT + _HEIGHT / 2,
        )

    def _box(self, number: int) -> tuple[float, float, float, float]:
        place, item = self._places[number]
        x, y = self._at(self._band.places[place].text - 0.75, item.row)
        width = (len(self._shape.nodes[number].name) + 1) * _WIDTH
        return x, y - _BOX / 2, width, _BOX

    def _node(self, number: int, node: Node) -> str:
        x, y, width, height = self._box(number)
        dash = "" if node.tasks[0].when == "on_success" else ' stroke-dasharray="4 2"'
        group = f"<g class={_quoted(self._look(node))}>" if self._look else "<g>"
        return (
            f"{group}<title>{_text(node.tasks[0].task)}</title>"
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'fill="white" stroke="black"{dash}/>'
            f'<text x="{x + width / 2:g}" y="{y + height / 2:g}" text-anchor="middle" '
            f'dominant-baseline="central" textLength="{len(node.name) * _WIDTH}">'
            f"{_text(node.name)}</text></g>"
        )


def _joints(ports: Sequence[tuple[str, int]]) -> Iterator[int]:
    """Yield the rows in which more than two lines of a net meet."""
    rows = {row for _, row in ports}
    for row in sorted(rows):
        sides = len({side for side, other in ports if other == row})
        if sides + (row > min(rows)) + (row < max(rows)) > 2:
            yield row


def _is_on(item: Item, net: int, end: Item) -> bool:
    """Return whether an item is `end`, or the part of a net (connected lines) in a column."""
    return item is end or (item.node is None and item.inlet == net)


def _text(text: str) -> str:
    return escape(_legal(text))


def _quoted(text: str) -> str:
    return quoteattr(_legal(text))


def _legal(text: str) -> str:
    clean = one_line(text, limit=_TITLE)
    return "".join("\ufffd" if ord(char) & 0xFFFF in _ENDS else char for char in clean)
