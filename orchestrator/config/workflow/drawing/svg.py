"""Draw a workflow as an SVG picture without scripts or external resources.

Each wave of the workflow is a column of boxes. An edge to the next column is a curve between the
columns. An edge to a later column passes the columns between on a line below the row of its first
node, where no column has a box. Each node has a line of its own there.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate
from statistics import fmean
from xml.sax.saxutils import escape, quoteattr

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.drawing.graph import Node, Shape, shape_of
from orchestrator.config.workflow.model import Workflow

_CHARACTER = 8
"""Width of a character in pixels, as all other sizes."""
_ROW, _BOX, _GAP = 32, 24, 48
"""Heights of a row and of a box in it, and width of the space between two columns."""
_LINE = 8
"""Additional height of a row for each node whose edges pass below it."""
_MARGIN = 16
_FONT = 13
_TITLE = 400
_ENDS = frozenset({0xFFFE, 0xFFFF})
"""Lower 16 bits of the last two code points of each Unicode plane; XML must not contain them."""


def svg(workflow: Workflow, *, look: Callable[[Node], str] | None = None) -> str:
    """Return a workflow as an SVG document.

    Args:
        workflow: The workflow.
        look: Function that returns the CSS class of a node. Default: nodes have no class.
    """
    drawing = _Drawing(shape_of(workflow))
    width, height = drawing.width, drawing.height
    return "\n".join(
        (
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="monospace" font-size="{_FONT}">',
            f"<title>{_text(workflow.name)}</title>",
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            '<g fill="none" stroke="black" marker-end="url(#arrow)">',
            *drawing.edges(),
            "</g>",
            *drawing.boxes(look),
            "</svg>",
        )
    )


class _Drawing:
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        nodes = shape.nodes
        rows = [0] * len(nodes)
        for depth in range(max(node.depth for node in nodes) + 1):
            column = [number for number, node in enumerate(nodes) if node.depth == depth]
            column.sort(key=lambda number: fmean([rows[n] for n in nodes[number].after] or [0]))
            for row, number in enumerate(column):
                rows[number] = row
        self._rows = rows
        far = {
            before for before, after in shape.edges if nodes[after].depth > nodes[before].depth + 1
        }
        passing: dict[int, list[int]] = {row: [] for row in sorted({*self._rows})}
        for number in sorted(far):
            passing[self._rows[number]].append(number)
        heights = (_ROW + _LINE * len(numbers) for numbers in passing.values())
        self._tops = [*accumulate(heights, initial=_MARGIN)]
        self._below = {
            number: self._tops[row] + _ROW + _LINE * place + _LINE // 2
            for row, numbers in passing.items()
            for place, number in enumerate(numbers)
        }
        """Height of the line on which the edges of a node pass other columns."""
        names = [
            max(len(node.name) for node in nodes if node.depth == depth)
            for depth in range(max(node.depth for node in nodes) + 1)
        ]
        self._widths = [(longest + 2) * _CHARACTER for longest in names]
        self._lefts = [*accumulate((width + _GAP for width in self._widths), initial=_MARGIN)]
        self.width = self._lefts[-1] - _GAP + _MARGIN
        self.height = self._tops[-1] + _MARGIN

    def _middle(self, number: int) -> int:
        return self._tops[self._rows[number]] + _ROW // 2

    def edges(self) -> Iterator[str]:
        """Yield the edges, each with its first and its last node."""
        for before, after in self._shape.edges:
            nodes = self._shape.nodes[before], self._shape.nodes[after]
            first, last = (node.name for node in nodes)
            begin, end = nodes[0].depth, nodes[1].depth
            x, y = self._lefts[begin] + self._widths[begin], self._middle(before)
            path = f"M {x} {y}"
            if end > begin + 1:
                y = self._below[before]
                path += f"{_curve(x, self._middle(before), y)} L {self._lefts[end] - _GAP} {y}"
                x = self._lefts[end] - _GAP
            path += _curve(x, y, self._middle(after))
            yield (
                f"<path data-from={_quote(first)} data-to={_quote(last)} "
                f'd="{path}"><title>{_text(f"{first} → {last}")}</title></path>'
            )

    def boxes(self, look: Callable[[Node], str] | None) -> Iterator[str]:
        """Yield the boxes of all nodes with their names."""
        for number, node in enumerate(self._shape.nodes):
            x, width = self._lefts[node.depth], self._widths[node.depth]
            middle = self._middle(number)
            dash = "" if node.tasks[0].when == "on_success" else ' stroke-dasharray="4 2"'
            group = f"<g class={_quote(look(node))}>" if look else "<g>"
            yield (
                f"{group}<title>{_text(node.tasks[0].task)}</title>"
                f'<rect x="{x}" y="{middle - _BOX // 2}" width="{width}" height="{_BOX}" rx="5" '
                f'fill="white" stroke="black"{dash}/>'
                f'<text x="{x + width // 2}" y="{middle}" text-anchor="middle" '
                f'dominant-baseline="central" textLength="{len(node.name) * _CHARACTER}">'
                f"{_text(node.name)}</text></g>"
            )


def _curve(x: int, y: int, end: int) -> str:
    """Return the path across the space between two columns, from one height to another."""
    return f" C {x + _GAP // 2} {y} {x + _GAP // 2} {end} {x + _GAP} {end}"


def _text(text: str) -> str:
    return escape(_legal(text))


def _quote(text: str) -> str:
    return quoteattr(_legal(text))


def _legal(text: str) -> str:
    clean = one_line(text, limit=_TITLE)
    return "".join("\ufffd" if ord(char) & 0xFFFF in _ENDS else char for char in clean)
