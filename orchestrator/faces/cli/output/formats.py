"""Format numbers and tables for users.

This module must not import the pydantic models of results or settings: building them takes longer
than a short command runs.
"""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta

from rich.cells import cell_len, set_cell_size

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.ages import parse_age
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.repository import KEPT

_GAP = "  "
_SHOWN_REFS = 5
_UNITS = ((1024**3, "g"), (1024**2, "m"), (1, ""))


def age(option: str, text: str) -> timedelta:
    """Parse an age such as `90s`, `15m`, `6h` or `2d`, the value of `option`.

    Raises:
        ConfigError: The text is not an age.
    """
    try:
        return parse_age(text)
    except ValueError as error:
        raise ConfigError(
            f"`{option}` must be an age, not `{one_line(text)}`",
            key="option.invalid",
            hint="use a whole number and a unit: `90s`, `15m`, `6h`, `2d`",
        ) from error


def size(number: int) -> str:
    """Return a number of bytes as a size such as `512m` or `4g`, in the syntax of options."""
    divisor, unit = next(unit for unit in _UNITS if number % unit[0] == 0)
    return f"{number // divisor}{unit}"


_SHORTEST = 10
"""Minimum width of a column that is shortened."""
_WIDTH_OF_LOGS = 160
"""Number of columns of a table that is printed to a file or pipe."""


def name_of(number: int, name: str | None) -> str:
    """Return how messages name a worker: `worker 3`, or `W3 (backend)` for a workflow's task."""
    return f"worker {number}" if name is None else f"W{number} ({one_line(name)})"


def title_of(number: int, name: str | None) -> str:
    """Return how tables name a worker: `3`, or `W3 backend` for a workflow's task."""
    return str(number) if name is None else f"W{number} {one_line(name)}"


def kept_line(refs: Sequence[str]) -> str:
    """Return a line for the user with the first of `refs`, which keep commits on no branch."""
    shown = ", ".join(one_line(ref) for ref in refs[:_SHOWN_REFS])
    more = len(refs) - _SHOWN_REFS
    rest = f" and {more} more: git for-each-ref {KEPT.rstrip('/')}" if more > 0 else ""
    return f"commits on no branch are kept in {shown}{rest}"


def table(
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    shrink: int = 1,
    optional: Sequence[int] = (),
) -> str:
    """Return rows as aligned columns; the first row is the heading.

    Args:
        rows: Rows of equal length.
        width: Columns of the terminal; None: no limit.
        shrink: Index of the column that is shortened to fit into `width`.
        optional: Indexes of columns that are left out, in this order, if that is not enough.
    """
    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    kept = [*range(len(widths))]
    if width is not None:
        least = min(widths[shrink], _SHORTEST)
        for column in (*optional, None):
            excess = sum(widths[column] + len(_GAP) for column in kept) - len(_GAP) - width
            if excess <= widths[shrink] - least or column is None:
                widths[shrink] = max(widths[shrink] - max(excess, 0), least)
                break
            kept.remove(column)
    lines = []
    for row in rows:
        cells = []
        for column in kept:
            cell, room = row[column], widths[column]
            is_cut = cell_len(cell) > room
            cells.append(
                set_cell_size(cell, room - 1) + "…" if is_cut else set_cell_size(cell, room)
            )
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def terminal_width() -> int | None:
    """Return the width of the terminal on stdout.

    Without a terminal, as in the log of a CI job, the variable `COLUMNS` counts, else 160 columns:
    programs read `--json`, and wider tables are hard for people to read.
    """
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        given = os.environ.get("COLUMNS", "")
        width = int(given[:9]) if given.isdecimal() else 0
        return width or _WIDTH_OF_LOGS
