"""Place a graph's nodes in columns and rows, and find routes for the lines between them.

Each column is a wave of the workflow. All edges into nodes with the same dependencies are drawn as
one set of connected lines, a net. Where a net crosses a column, it takes up a row there, called a
lane. Lines that touch always belong to the same net, so that a reader cannot follow a line to a
wrong node.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import floor
from statistics import fmean

from orchestrator.workflow.drawing.graph import Shape
from orchestrator.workflow.drawing.routing import Tracks, tracks

_SWEEPS = 12
_RELAXATIONS = 6
_PATIENCE = 100
"""Number of attempts to route the lines of a gap by moving items down one row each; after that, the
items are moved below all lines.
"""


@dataclass(eq=False)
class Item:
    """An element that takes up rows in a column: a node, or a net that crosses it (a lane)."""

    node: int | None
    inlet: int | None
    """Number of the net (connected lines) that enters from the left; None if no net enters."""
    outlets: list[int]
    """Numbers of the nets (connected lines) that leave to the right; each net takes one row."""
    row: int = 0
    position: float = 0.0
    """Preferred row of the item, before all items are moved to whole rows."""

    @property
    def height(self) -> int:
        """Return the number of rows that the item takes up."""
        return max(1, len(self.outlets))


Column = list[Item]


@dataclass(frozen=True)
class Layout:
    """Columns of items from left to right, and the routed lines in the gaps between the columns."""

    columns: Sequence[Column]
    gaps: Sequence[Tracks]
    breaks: frozenset[int]
    """Indices of columns without nodes, at which a wide drawing may be wrapped."""


def lay_out(shape: Shape, breaks: Iterable[int] = ()) -> Layout:
    """Place all nodes and lines of a graph.

    Args:
        shape: The graph to draw.
        breaks: Depths before which the drawing is wrapped.
    """
    before = sorted(breaks)
    places = [node.depth + bisect_right(before, node.depth) for node in shape.nodes]
    columns = _order(_columns(shape, places))
    _relax(columns)
    gaps = _settle(columns)
    return Layout(columns, gaps, frozenset(depth + n for n, depth in enumerate(before)))


def _columns(shape: Shape, places: Sequence[int]) -> list[Column]:
    columns: list[Column] = [[] for _ in range(max(places) + 1)]
    nets = {node.after: number for number, node in enumerate(shape.nodes) if node.after}
    outlets: dict[int, list[int]] = {}
    for sources, net in nets.items():
        for source in sources:
            outlets.setdefault(source, []).append(net)
    for number, node in enumerate(shape.nodes):
        item = Item(number, nets.get(node.after), outlets.get(number, []))
        columns[places[number]].append(item)
    for sources, net in nets.items():
        for place in range(min(places[source] for source in sources) + 1, places[net]):
            columns[place].append(Item(None, net, [net]))
    return columns


def _before(columns: Sequence[Column], place: int) -> Callable[[Item], list[Item]]:
    """Return a function that returns the items on the left to which an item is connected."""
    found: dict[int, list[Item]] = {}
    for item in columns[place - 1] if place else ():
        for net in item.outlets:
            found.setdefault(net, []).append(item)
    return lambda item: [] if item.inlet is None else found.get(item.inlet, [])


def _behind(columns: Sequence[Column], place: int) -> Callable[[Item], list[Item]]:
    found: dict[int, list[Item]] = {}
    for item in columns[place + 1] if place + 1 < len(columns) else ():
        if item.inlet is not None:
            found.setdefault(item.inlet, []).append(item)
    return lambda item: [other for net in item.outlets for other in found.get(net, ())]


def _order(columns: list[Column]) -> list[Column]:
    """Reorder the items in each column so that fewer lines cross."""
    best, least = [list(column) for column in columns], _crossings(columns)
    for sweep in range(_SWEEPS):
        if not least:
            break
        forth = sweep % 2 == 0
        for place in range(len(columns)) if forth else reversed(range(len(columns))):
            neighbours = (_before if forth else _behind)(columns, place)
            _sort(columns, place, neighbours, place - 1 if forth else place + 1)
        crossings = _crossings(columns)
        if crossings < least:
            best, least = [list(column) for column in columns], crossings
    for place, column in enumerate(best):
        _order_outlets(column, best[place + 1] if place + 1 < len(best) else [])
    return best


def _sort(
    columns: list[Column], place: int, neighbours: Callable[[Item], list[Item]], beside: int
) -> None:
    if not 0 <= beside < len(columns):
        return
    at = {id(item): number for number, item in enumerate(columns[beside])}
    own = {id(item): number for number, item in enumerate(columns[place])}

    def middle(item: Item) -> float:
        joined = neighbours(item)
        return fmean(at[id(other)] for other in joined) if joined else own[id(item)]

    columns[place].sort(key=middle)


def _crossings(columns: Sequence[Column]) -> int:
    total = 0
    for place, (_, right) in enumerate(pairwise(columns)):
        at = {id(item): number for number, item in enumerate(right)}
        behind, seen = _behind(columns, place), list[int]()
        for item in columns[place]:
            ends = [at[id(other)] for other in behind(item)]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _order_outlets(column: Column, right: Column) -> None:
    at: dict[int, list[int]] = {}
    for number, item in enumerate(right):
        if item.inlet is not None:
            at.setdefault(item.inlet, []).append(number)
    for item in column:
        item.outlets.sort(key=lambda net: fmean(at[net]))


def _relax(columns: Sequence[Column]) -> None:
    """Move items nearer to the rows of the items to which they are connected."""
    for column in columns:
        tops = accumulate((item.height for item in column), initial=0)
        middle = sum(item.height for item in column) / 2
        for item, top in zip(column, tops, strict=False):
            item.position = top - middle
    for _ in range(_RELAXATIONS):
        for place in range(len(columns)):
            _move(columns[place], _positions_from_left(columns, place))
        for place in reversed(range(len(columns))):
            _move(columns[place], _positions_from_right(columns, place))


def _positions_from_left(columns: Sequence[Column], place: int) -> list[float]:
    before = _before(columns, place)
    positions = []
    for item in columns[place]:
        rows = [
            other.position + other.outlets.index(item.inlet)
            for other in before(item)
            if item.inlet is not None
        ]
        positions.append(fmean(rows) if rows else item.position)
    return positions


def _positions_from_right(columns: Sequence[Column], place: int) -> list[float]:
    behind = _behind(columns, place)
    positions = []
    for item in columns[place]:
        rows = [
            other.position - item.outlets.index(other.inlet)
            for other in behind(item)
            if other.inlet is not None
        ]
        positions.append(fmean(rows) if rows else item.position)
    return positions


def _move(column: Column, positions: Sequence[float]) -> None:
    """Set items' positions as close to `positions` as possible, in order and without overlap."""
    tops = list(accumulate((item.height for item in column), initial=0))
    blocks: list[tuple[float, int]] = []
    for position, top in zip(positions, tops, strict=False):
        mean, size = position - top, 1
        while blocks and blocks[-1][0] > mean:
            other, more = blocks.pop()
            mean = (mean * size + other * more) / (size + more)
            size += more
        blocks.append((mean, size))
    rows = (mean for mean, size in blocks for _ in range(size))
    for item, row, top in zip(column, rows, tops, strict=False):
        item.position = row + top


def _settle(columns: Sequence[Column]) -> list[Tracks]:
    """Move all items to whole rows, and return the routes of the lines in each gap."""
    gaps: list[Tracks] = []
    for place, column in enumerate(columns):
        _move(column, [item.position for item in column])
        for item in column:
            item.row = floor(item.position + 0.5)
        if place:
            gaps.append(_route(columns[place - 1], column))
    return gaps


def _route(left: Column, right: Column) -> Tracks:
    ports = {item.row + number: net for item in left for number, net in enumerate(item.outlets)}
    for attempt in range(_PATIENCE + len(right)):
        inlets = {item.row: item.inlet for item in right if item.inlet is not None}
        routed = tracks(ports, inlets)
        if isinstance(routed, Tracks):
            return routed
        below = max(ports) + 1 - routed if attempt >= _PATIENCE else 1
        for item in right:
            item.row += below if item.row >= routed else 0
    raise AssertionError("a connection drawn below all others must not cross a task of the graph")
