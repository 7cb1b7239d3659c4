"""Cut a wide drawing into bands, one below the other, with all coordinates in characters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.workflow.drawing.layout import Column, Item, Layout

_ARROW = 2
Point = tuple[int, int]
"""Column and row of a character."""


@dataclass(frozen=True)
class Place:
    """Positions of one column in a drawing: its arrows, its texts, and the lines to its right."""

    column: Column
    arrow: int
    text: int
    port: int
    is_first: bool
    is_last: bool
    label: Callable[[Item], str]
    """Function that returns the text of an item; empty for an item without a node."""

    def start(self, item: Item) -> Point:
        """Return the point from which the lines of an item start."""
        label = self.label(item)
        return (self.text + len(label) + 1 if label else self.arrow, item.row)


class Band:
    """A part of a wrapped drawing: successive columns that are drawn side by side."""

    def __init__(
        self, layout: Layout, label: Callable[[int, Item], str], first: int, last: int
    ) -> None:
        """Calculate the positions of the columns from `first` to `last`."""
        self._layout = layout
        self.first, self.last = first, last
        self.places: dict[int, Place] = {}
        at = 0
        for number in range(first, last + 1):
            place = self._place(number, at, label)
            self.places[number] = place
            at = place.port + 1 + self._gap(number)

    def _place(self, number: int, at: int, label: Callable[[int, Item], str]) -> Place:
        column = self._layout.columns[number]
        is_first, is_last = number == self.first, number == self.last
        text = at if is_first else at + _ARROW

        def of(item: Item) -> str:
            return label(number, item)

        port = text + max(len(of(item)) for item in column) + 1
        return Place(column, at, text, port, is_first, is_last, of)

    def _gap(self, number: int) -> int:
        return 2 * self._layout.gaps[number].count + 1 if number < self.last else 0

    @property
    def width(self) -> int:
        """Return the number of characters of the band's longest line."""
        return self.places[self.last].port - 1

    def track(self, number: int, net: int) -> int | None:
        """Return the x coordinate where a net (connected lines) turns after a column, or None."""
        track = self._layout.gaps[number].of.get(net)
        return None if track is None else self.places[number].port + 2 + 2 * track

    def stem(self, number: int, item: Item, net: int) -> list[Point]:
        """Return the points of a net (connected lines) from an item to the gap after its column."""
        place = self.places[number]
        row = item.row + item.outlets.index(net)
        return [place.start(item), (place.port, item.row), (place.port, row), (place.port + 1, row)]

    def run(self, number: int, net: int, row: int, end: Item) -> list[Point]:
        """Return the points of a net (connected lines) from the gap after a column to `end`."""
        place = self.places[number]
        turn = self.track(number, net)
        corners = [] if turn is None else [(turn, row), (turn, end.row)]
        return [(place.port + 1, row), *corners, (self.places[number + 1].arrow, end.row)]

    def runs(self, number: int) -> Iterator[tuple[int, Item, Item]]:
        """Yield the connections to the next column: net (connected lines), left and right item."""
        if number == self.last:
            return
        ends: dict[int | None, list[Item]] = {}
        for item in self._layout.columns[number + 1]:
            ends.setdefault(item.inlet, []).append(item)
        for item in self._layout.columns[number]:
            for net in item.outlets:
                for end in ends[net]:
                    yield net, item, end


def bands(layout: Layout, label: Callable[[int, Item], str]) -> Sequence[Band]:
    """Cut a layout into bands at the columns in `layout.breaks`."""
    edges = [0, *sorted(layout.breaks), len(layout.columns) - 1]
    return [Band(layout, label, first, last) for first, last in pairwise(edges)]
