"""A part of a layout that fits on a page: the places of everything in it, in characters."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.workflow.drawing.layout import Column, Item, Layout

_ARROW = 2
Point = tuple[int, int]
"""Column and row."""


@dataclass(frozen=True)
class Place:
    """Where a column of a layout is: an arrow, a text, and where lines leave its items."""

    column: Column
    arrow: int
    text: int
    port: int
    is_first: bool
    is_last: bool
    label: Callable[[Item], str]
    """What stands there; nothing for a lane that only passes."""

    def start(self, item: Item) -> Point:
        """Where the line that leaves an item begins."""
        label = self.label(item)
        return (self.text + len(label) + 1 if label else self.arrow, item.row)


class Band:
    """Columns of a layout from one to another."""

    def __init__(
        self, layout: Layout, label: Callable[[int, Item], str], first: int, last: int
    ) -> None:
        """Place the columns.

        Args:
            layout: What they are of.
            label: Gives what stands at an item of a column.
            first: The first column.
            last: The last one.
        """
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
        """Characters of its longest line."""
        return self.places[self.last].port - 1

    def track(self, number: int, net: int) -> int | None:
        """Return where a net turns behind a column; None when it goes straight on."""
        track = self._layout.gaps[number].of.get(net)
        return None if track is None else self.places[number].port + 2 + 2 * track

    def stem(self, number: int, item: Item, net: int) -> list[Point]:
        """Return the line from an item to behind its column, on the row of a net."""
        place = self.places[number]
        row = item.row + item.outlets.index(net)
        return [place.start(item), (place.port, item.row), (place.port, row), (place.port + 1, row)]

    def run(self, number: int, net: int, row: int, end: Item) -> list[Point]:
        """Return the line of a net from behind a column to an item of the next column."""
        place = self.places[number]
        turn = self.track(number, net)
        corners = [] if turn is None else [(turn, row), (turn, end.row)]
        return [(place.port + 1, row), *corners, (self.places[number + 1].arrow, end.row)]

    def runs(self, number: int) -> Iterator[tuple[int, Item, Item]]:
        """Yield what is joined over the gap behind a column: a net, and an item on both sides."""
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
    """Cut a layout at its breaks; a column that is one ends a band and begins the next."""
    edges = [0, *sorted(layout.breaks), len(layout.columns) - 1]
    return [Band(layout, label, first, last) for first, last in pairwise(edges)]
