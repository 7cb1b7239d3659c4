"""Choose positions for the vertical lines between two columns, so that no two lines overlap."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

Ports = Mapping[int, int]
"""Number of the net at each row on one side of a gap. A net connects all rows with its number."""


@dataclass(frozen=True)
class Tracks:
    """Positions of the vertical lines in the gap between two columns."""

    of: Mapping[int, int]
    """Position of each net's vertical line, counted from the left. A net without a vertical line is
    missing.
    """
    count: int


def tracks(left: Ports, right: Ports) -> Tracks | int:
    """Return the position of each net's vertical line; or a row on the right, if no order fits.

    A net is a set of connected ends of lines. If a row is an end of one net on the left and of
    another net on the right, the vertical line of the left net must be further to the left. The
    returned row is part of such a conflict.
    """
    spans = _spans(left, right)
    earlier = _earlier(left, right)
    of: dict[int, int] = {}
    taken: list[list[tuple[int, int]]] = []
    waiting = dict.fromkeys(spans)
    while waiting:
        ready = next((net for net in waiting if earlier.get(net, set()) <= of.keys()), None)
        if ready is None:
            return _impossible(left, right, waiting)
        del waiting[ready]
        first = 1 + max((of[net] for net in earlier.get(ready, ())), default=-1)
        of[ready] = _free(spans[ready], taken, first)
    return Tracks(of, len(taken))


def _spans(left: Ports, right: Ports) -> dict[int, tuple[int, int]]:
    rows: dict[int, set[int]] = {}
    for ports in (left, right):
        for row, net in ports.items():
            rows.setdefault(net, set()).add(row)
    spans = {net: (min(own), max(own)) for net, own in rows.items()}
    return {net: span for net, span in sorted(spans.items()) if span[0] != span[1]}


def _earlier(left: Ports, right: Ports) -> dict[int, set[int]]:
    earlier: dict[int, set[int]] = {}
    for row, net in right.items():
        if left.get(row, net) != net:
            earlier.setdefault(net, set()).add(left[row])
    return earlier


def _impossible(left: Ports, right: Ports, waiting: Collection[int]) -> int:
    return min(
        row
        for row, net in right.items()
        if net in waiting and left.get(row, net) in waiting and left.get(row, net) != net
    )


def _free(span: tuple[int, int], taken: list[list[tuple[int, int]]], first: int) -> int:
    number = first
    while number < len(taken) and any(_meet(span, other) for other in taken[number]):
        number += 1
    taken.extend([] for _ in range(number - len(taken) + 1))
    taken[number].append(span)
    return number


def _meet(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] <= second[1] and second[0] <= first[1]
