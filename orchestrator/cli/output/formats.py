"""Numbers and tables as people read them."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from rich.cells import cell_len, set_cell_size

from orchestrator.config.run import parse_age
from orchestrator.errors import ConfigError
from orchestrator.git.repository import KEPT
from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.text.sanitize import one_line

UNKNOWN = "?"
_GAP = "  "
_SHOWN_REFS = 5
_UNITS = ((1024**3, "g"), (1024**2, "m"), (1, ""))


def duration(seconds: float) -> str:
    """`12.3 s`, `2 min 5 s` or `1 h 2 min`."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def age(option: str, text: str) -> timedelta:
    """Read `90s`, `15m`, `6h` or `2d`, as `option` takes it.

    Raises:
        ConfigError: It is something else.
    """
    try:
        return parse_age(text)
    except ValueError as error:
        raise ConfigError(
            f"`{option}` takes an age, not `{one_line(text)}`",
            hint="give a whole number and a unit: `90s`, `15m`, `6h`, `2d`",
        ) from error


def money(cost: float, *, known: bool = True) -> str:
    """`$1.20`; four places below a dollar, where cents would say nothing."""
    if not known:
        return UNKNOWN
    return f"${cost:.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def shown_sum(costs: Iterable[float]) -> float:
    """Add up costs as `money` shows them, so that a reader comes to the same sum."""
    return sum(round(cost, 2 if cost >= 1 else 4) for cost in costs)


def size(number: int) -> str:
    """`512m`, `4g`, as options take it."""
    divisor, unit = next(unit for unit in _UNITS if number % unit[0] == 0)
    return f"{number // divisor}{unit}"


def amount(number: int) -> str:
    """`14.2M`: bytes in little room."""
    value, unit = float(number), "B"
    for larger in "KMGT":
        if value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f}{unit}" if value < 100 and unit != "B" else f"{value:.0f}{unit}"


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def called(number: int, name: str | None) -> str:
    """Return `worker 3`, or in a workflow `W3 (backend)`."""
    return f"worker {number}" if name is None else f"W{number} ({one_line(name)})"


def titled(number: int, name: str | None) -> str:
    """Return `3`, or in a workflow `W3 backend`: for a cell of a table."""
    return str(number) if name is None else f"W{number} {one_line(name)}"


def never_ran(result: WorkerResult) -> bool:
    """Return whether a workflow passed a task over, for what became of others."""
    is_unneeded = result.status is Status.SUCCESS and result.started_at is None
    return result.name is not None and (is_unneeded or result.reason is Reason.DEPENDENCY)


def outcome(result: WorkerResult) -> str:
    """Return how a worker ended and why, and after how many attempts: `failed (oom), attempt 2`."""
    reason = f" ({result.reason.value})" if result.reason else ""
    attempt = f", attempt {result.attempts}" if result.attempts > 1 else ""
    return result.status.value + reason + attempt


def explanation(result: WorkerResult) -> str:
    """Return a worker's message as the end of a line, unless it only repeats the reason."""
    if not result.message or result.message == result.reason:
        return ""
    return f": {one_line(result.message)}"


def kept_line(refs: Sequence[str]) -> str:
    """Name the refs of commits that no branch has, and of many the first: `also kept: ...`."""
    shown = ", ".join(one_line(ref) for ref in refs[:_SHOWN_REFS])
    more = len(refs) - _SHOWN_REFS
    rest = f" and {more} more: git for-each-ref {KEPT.rstrip('/')}" if more > 0 else ""
    return f"also kept: {shown}{rest}"


def table(rows: Sequence[Sequence[str]], *, width: int | None = None, shrink: int = 1) -> str:
    """Line up columns; the first row is the heading.

    Args:
        rows: All of one length.
        width: Columns of the terminal; None cuts nothing.
        shrink: The column that is cut to fit into `width`.
    """
    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    if width is not None:
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        widths[shrink] = max(widths[shrink] - max(excess, 0), min(widths[shrink], 10))
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _fit(cell: str, width: int) -> str:
    if cell_len(cell) > width:
        return set_cell_size(cell, width - 1) + "…"
    return cell + " " * (width - cell_len(cell))
