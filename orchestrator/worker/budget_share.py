"""Share of the budget that one worker may spend."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.results import WorkerResult


@dataclass(frozen=True)
class BudgetShare:
    """Upper limits on what a worker may spend; None: no limit."""

    budget: float | None = None
    """Cost in USD; None for no limit."""
    tokens: int | None = None

    @property
    def is_spent(self) -> bool:
        """Whether the whole share is spent."""
        budget, tokens = self.budget, self.tokens
        return (budget is not None and budget <= 0) or (tokens is not None and tokens <= 0)

    def after(self, attempts: Sequence[WorkerResult]) -> "BudgetShare":
        """Return the share without the cost and tokens of earlier attempts."""
        budget, tokens = self.budget, self.tokens
        if budget is not None:
            budget -= sum(one.cost for one in attempts)
        if tokens is not None:
            tokens -= sum(one.tokens or 0 for one in attempts)
        return BudgetShare(budget, tokens)
