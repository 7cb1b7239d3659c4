"""The file that records a worker's spending through the broker, with two lines for each call.

The first line is written before the call, with the maximum cost of the call; the second line
has the real cost, or the maximum if the answer did not reach its own end. If the second line is
missing, because the broker was killed, the first line counts.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 64 * 1024**2
"""Maximum size in bytes of a ledger file that is read."""


@dataclass
class Spent:
    """Totals of the calls in a ledger file."""

    cost: float = 0.0
    """Total cost in USD of the calls that have ended."""
    tokens: int = 0
    """Number of input and output tokens of the calls that have ended."""
    calls: int = 0
    priced: bool = True
    """Whether the prices of all recorded calls are known."""
    refused: set[str] = field(default_factory=set)
    """Reasons for which the broker refused calls."""
    unpriced: str = ""
    """The first model that was refused because its price is unknown."""
    pending: dict[int, tuple[float | None, int]] = field(default_factory=dict)
    """Cost and tokens reserved for each call that has not ended, by the call's number; a cost is
    None if the price is unknown.
    """

    @property
    def cost_if_known(self) -> float | None:
        """Cost of all calls in USD, including reserved amounts; None if a price is unknown."""
        known = self.priced and all(cost is not None for cost, _ in self.pending.values())
        return self.most_cost if known else None

    @property
    def most_cost(self) -> float:
        """Return the cost in USD with reserved amounts; calls with an unknown price count as 0."""
        # protection: costs-of-unfinished-calls-count
        return self.cost + sum(cost or 0.0 for cost, _ in self.pending.values())

    @property
    def most_tokens(self) -> int:
        """Return the number of tokens, including tokens reserved for calls that have not ended."""
        return self.tokens + sum(tokens for _, tokens in self.pending.values())

    def add(self, line: dict[str, object]) -> None:
        """Add one line of the ledger file to the totals."""
        number = line.get("call")
        if not isinstance(number, int):
            self.refused.add(str(line.get("refused")))
            self.unpriced = self.unpriced or str(line.get("model") or "")
            return
        cost, tokens = line.get("cost"), line.get("tokens")
        amount = float(cost) if isinstance(cost, int | float) else None
        count = tokens if isinstance(tokens, int) else 0
        if not line.get("ended"):
            self.calls += 1
            self.pending[number] = (amount, count)
            return
        self.pending.pop(number, None)
        self.cost += amount or 0.0
        self.tokens += count
        self.priced = self.priced and amount is not None


def read_ledger(path: Path) -> Spent:
    """Return the totals of a ledger file; a file that does not exist counts as empty.

    Raises:
        OSError: The file cannot be read.
    """
    spent = Spent()
    try:
        with path.open("rb") as file:
            lines = file.read(MOST_BYTES).splitlines()
    except FileNotFoundError:
        return spent
    for line in lines:
        # The broker may have been killed while it wrote a line.
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                spent.add(entry)
    return spent


class Ledger:
    """The ledger of one attempt of a worker, to which the broker appends."""

    def __init__(self, path: Path) -> None:
        """Open the ledger. Calls that a dead broker never completed count with their maximum cost.

        Raises:
            OSError: The file cannot be read or written.
        """
        # protection: calls-through-earlier-broker-count
        self.spent = read_ledger(path)
        self._number = self.spent.calls
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o644)
        if path.stat().st_size:
            # The last line may be incomplete.
            os.write(self._file, b"\n")

    def begin(self, cost: float | None, tokens: int, model: str) -> int:
        """Reserve the maximum cost of a call, and return the number of the call."""
        self._number += 1
        self._add({"call": self._number, "model": model[:200], "cost": cost, "tokens": tokens})
        return self._number

    def end(self, number: int, cost: float | None, tokens: int) -> None:
        """Record a call's real tokens and `cost`, which is None if the price is unknown."""
        self._add({"call": number, "ended": True, "cost": cost, "tokens": tokens})

    def end_unknown(self, number: int, *seen: tuple[float | None, int]) -> None:
        """Record the end of a call whose cost is unknown: the reserved amount counts as spent.

        Args:
            number: Number of the call.
            seen: Cost and tokens that the call had at least, of which the largest counts if it is
                larger than what was reserved.
        """
        # protection: interrupted-answers-count-with-their-maximum-cost
        cost, tokens = self.spent.pending[number]
        if cost is not None:
            cost = max([cost, *(known for known, _ in seen if known is not None)])
        self.end(number, cost, max([tokens, *(count for _, count in seen)]))

    def refuse(self, why: str, model: str | None = None) -> None:
        """Record why a call was refused, and for which model; each reason is recorded once."""
        if why not in self.spent.refused:
            self._add({"refused": why} if model is None else {"refused": why, "model": model})

    def _add(self, line: dict[str, object]) -> None:
        # Recorded before it counts, so that a killed broker forgets nothing.
        os.write(self._file, json.dumps(line).encode() + b"\n")
        self.spent.add(line)
