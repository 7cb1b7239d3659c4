"""Draw the packages of the program as SVG, from the imports and docstrings in the source.

`docs/check.py` compares `docs/rooms.svg` with this drawing, and rewrites it with `--write`.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

from imports import ENTRY, ROOT, Module, depths, import_graph, read_modules, room_graph

WIDTH, MARGIN, GAP = 1080, 20, 24
BOX_PADDING, FLOOR_GAP = 12, 38
TITLE, TEXT = 16, 12.5
LINE_HEIGHT = 16
CHARACTER = 7.0
"""Width of a character of the small text, rounded up."""
NARROW = 120
STYLE = """\
text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2937}
.name{font-size:16px;font-weight:600}.purpose{font-size:12.5px;fill:#374151}
.inner,.note{font-size:12.5px;fill:#6b7280}
.box{fill:#eef3fa;stroke:#5b7aa6;stroke-width:1.2}.ground{fill:#f3f4f6;stroke:#9ca3af}
.arrow{fill:none;stroke:#5b6472;stroke-width:1.4}"""


@dataclass(frozen=True)
class Room:
    """A folder or file at the top of the package."""

    name: str
    title: str
    purpose: str
    inner: tuple[str, ...]
    """Packages inside the room."""


@dataclass(frozen=True)
class Box:
    """Position and size of a room in the drawing."""

    room: Room
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]

    @property
    def middle(self) -> float:
        """The horizontal centre."""
        return self.x + self.width / 2


@cache
def draw(root: Path = ROOT) -> str:
    """Return the drawing of the package in the project at `root`."""
    modules = read_modules(root)
    imports = {
        room: others - ENTRY
        for room, others in room_graph(modules, import_graph(modules)).items()
        if room not in ENTRY
    }
    floors = _floors(imports)
    boxes, height = _placed(floors, _rooms(modules))
    arrows = [_arrow(boxes[start], boxes[end], boxes) for start, end in _needed(imports)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="title">'
    )
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#5b6472"/></marker></defs>'
    )
    parts = [
        head,
        '<title id="title">Packages of orchestrator, each above the packages it imports</title>',
        f"<style>{STYLE}</style>",
        marker,
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *arrows,
        *(
            line
            for box in boxes.values()
            for line in _drawn(box, ground=not imports[box.room.name])
        ),
        f'<text class="note" x="{MARGIN}" y="{height - 16}">An arrow means "imports". Left out: '
        "arrows that a longer way implies, and arrows to the bottom row, which every package may "
        "import.</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rooms(modules: Mapping[str, Module]) -> dict[str, Room]:
    found = {}
    for module in modules.values():
        parts = module.path.parts[1:]
        if len(parts) == 1 or (len(parts) == 2 and module.is_package):
            purpose = (ast.get_docstring(module.tree) or "").partition("\n\n")[0]
            prefix = f"{module.name}."
            inner = tuple(
                f"{other.name.removeprefix(prefix)}/"
                for other in modules.values()
                if other.is_package and other.name.startswith(prefix)
                and "." not in other.name.removeprefix(prefix)
            )  # fmt: skip
            title = f"{module.room}/" if len(parts) == 2 else parts[0]
            found[module.room] = Room(
                module.room, title, " ".join(purpose.replace("`", "").split()), inner
            )
    return found


def _floors(imports: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the rooms of every floor, from top to bottom, ordered so that few arrows cross."""
    depth = depths(imports)
    floors = [
        sorted(room for room in imports if depth[room] == level)
        for level in range(max(depth.values()), 0, -1)
    ]
    needed = _needed(imports)
    for above, floor in pairwise(floors):
        place = {room: index for index, room in enumerate(above)}

        def wanted(room: str, place: Mapping[str, int] = place) -> tuple[float, str]:
            users = [place[start] for start, end in needed if end == room and start in place]
            return (sum(users) / len(users) if users else len(place) / 2, room)

        floor.sort(key=wanted)
    return floors


def _needed(imports: Mapping[str, frozenset[str]]) -> list[tuple[str, str]]:
    """Return the arrows that no longer path implies, except arrows to rooms that import nothing."""
    reached: dict[str, frozenset[str]] = {}
    for room in sorted(imports, key=depths(imports).__getitem__):
        reached[room] = imports[room].union(*(reached[other] for other in imports[room]))
    return [
        (room, other)
        for room in sorted(imports)
        for other in sorted(imports[room])
        if imports[other] and not any(other in reached[between] for between in imports[room])
    ]


def _placed(
    floors: Sequence[Sequence[str]], rooms: Mapping[str, Room]
) -> tuple[dict[str, Box], float]:
    boxes = {}
    y: float = MARGIN
    for floor in floors:
        widths = _widths([rooms[name] for name in floor])
        x = (WIDTH - sum(widths) - GAP * (len(floor) - 1)) / 2
        texts = [
            tuple(wrap(rooms[name].purpose, int((width - 2 * BOX_PADDING) / CHARACTER)))
            for name, width in zip(floor, widths, strict=True)
        ]
        lines = max(
            len(text) + bool(rooms[name].inner) for name, text in zip(floor, texts, strict=True)
        )
        height = 2 * BOX_PADDING + TITLE + LINE_HEIGHT * lines
        for name, width, text in zip(floor, widths, texts, strict=True):
            boxes[name] = Box(rooms[name], round(x), round(y), round(width), height, text)
            x += width + GAP
        y += height + FLOOR_GAP
    return boxes, round(y)


def _widths(floor: Sequence[Room]) -> list[float]:
    """Divide a floor's width among its rooms by the width that their texts need in two lines."""
    least = [max(NARROW, 10 * len(room.title) + 2 * BOX_PADDING) for room in floor]
    wanted = [
        max(width, (len(room.purpose) / 2 + 9) * CHARACTER + 2 * BOX_PADDING)
        for width, room in zip(least, floor, strict=True)
    ]
    free = WIDTH - 2 * MARGIN - GAP * (len(floor) - 1)
    if sum(wanted) <= free:
        return wanted
    share = (free - sum(least)) / (sum(wanted) - sum(least))
    return [width + share * (more - width) for width, more in zip(least, wanted, strict=True)]


def _arrow(start: Box, end: Box, boxes: Mapping[str, Box]) -> str:
    """Draw an arrow that crosses other floors in the gaps between their boxes."""
    points = [(_towards(start, end), start.y + start.height)]
    for y in sorted({box.y for box in boxes.values() if start.y < box.y < end.y}):
        floor = [box for box in boxes.values() if box.y == y]
        edges = [GAP / -2 + min(box.x for box in floor), *(b.x + b.width + GAP / 2 for b in floor)]
        gap = min(edges, key=lambda edge: abs(edge - (points[-1][0] + end.middle) / 2))
        points += [(gap, y - 6), (gap, y + floor[0].height + 6)]
    points.append((_towards(end, start), end.y - 1))
    path = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x1, y1), (x2, y2) in pairwise(points):
        half = (y1 + y2) / 2
        path += f"C{x1:.0f} {half:.0f} {x2:.0f} {half:.0f} {x2:.0f} {y2:.0f}"
    return f'<path class="arrow" marker-end="url(#head)" d="{path}"/>'


def _towards(box: Box, other: Box) -> float:
    """Return where an arrow meets the edge of a box: shifted by a quarter towards the other box."""
    reach = box.width / 4
    return box.middle + max(-reach, min(reach, other.middle - box.middle))


def _drawn(box: Box, *, ground: bool) -> Iterator[str]:
    kind = "box ground" if ground else "box"
    yield (
        f'<rect class="{kind}" x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" '
        f'height="{box.height:g}" rx="5"/>'
    )
    x, y = box.x + BOX_PADDING, box.y + BOX_PADDING + TITLE - 3
    yield f'<text class="name" x="{x:g}" y="{y:g}">{escape(box.room.title)}</text>'
    for number, line in enumerate(box.lines, start=1):
        below = y + LINE_HEIGHT * number + 2
        yield f'<text class="purpose" x="{x:g}" y="{below:g}">{escape(line)}</text>'
    if box.room.inner:
        below = y + LINE_HEIGHT * (len(box.lines) + 1) + 2
        yield f'<text class="inner" x="{x:g}" y="{below:g}">{"  ".join(box.room.inner)}</text>'
