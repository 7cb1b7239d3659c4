"""The share of the run's budget that one worker may spend."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.base.results import WorkerResult


@dataclass(frozen=True)
class BudgetShare:
    """Maximum amounts that a worker may spend; None: no limit."""

    budget: float | None = None
    """Maximum cost in USD; None: no limit."""
    tokens: int | None = None

    @property
    def is_spent(self) -> bool:
        """Return whether nothing is left of the share."""
        budget, tokens = self.budget, self.tokens
        return (budget is not None and budget <= 0) or (tokens is not None and tokens <= 0)

    def after(self, attempts: Sequence[WorkerResult]) -> "BudgetShare":
        """Return what is left of the share after the cost and tokens of earlier attempts."""
        budget, tokens = self.budget, self.tokens
        if budget is not None:
            budget -= sum(attempt.cost for attempt in attempts)
        if tokens is not None:
            tokens -= sum(attempt.tokens or 0 for attempt in attempts)
        return BudgetShare(budget, tokens)
