"""Where the lines between two columns of a picture turn: no two of them are ever taken for one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

Ports = Mapping[int, int]
"""Row of a port to the net that it belongs to: what joins all its ports of both sides."""


@dataclass(frozen=True)
class Tracks:
    """The vertical lines of one gap."""

    of: Mapping[int, int]
    """Net to its track, 0 the first from the left; a net that goes straight on has none."""
    count: int


def tracks(left: Ports, right: Ports) -> Tracks | int:
    """Return every net that turns a track, or a row of the right side that makes it impossible.

    A row may belong to one net on the left and to another on the right: the first must have turned
    off before the second turns in.
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
    found = {net: (min(mine), max(mine)) for net, mine in rows.items()}
    return {net: span for net, span in sorted(found.items()) if span[0] != span[1]}


def _earlier(left: Ports, right: Ports) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for row, net in right.items():
        if left.get(row, net) != net:
            found.setdefault(net, set()).add(left[row])
    return found


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


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
