"""Divide the total budget of a run among its workers. Pure functions and data."""

from dataclasses import dataclass
from typing import Final

from orchestrator.base.results import WorkerResult
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import job_count
from orchestrator.worker.budget_share import BudgetShare

_LEAST_BUDGET: Final = 0.0001
"""Minimum share of the budget in USD; a worker with a smaller share is not started."""
_LEAST_TOKENS: Final = 1


@dataclass
class BudgetPool:
    """A total amount divided into shares; spent and reserved amounts never exceed the total."""

    total: float
    least: float
    """Minimum share that a worker can get."""
    spent: float = 0.0
    reserved: float = 0.0

    @property
    def left(self) -> float:
        """Return the amount that is neither spent nor reserved."""
        return max(0.0, self.total - self.spent - self.reserved)

    def share(self, waiting: int, *, most: float | None = None) -> float | None:
        """Reserve a share for a worker; return None if too little is left.

        Args:
            waiting: Number of workers without a share, including this worker.
            most: Largest share for this worker.
        """
        fair = self.left / max(1, waiting)
        given = fair if most is None else min(fair, most)
        if given < self.least:
            return None
        self.reserved += given
        return given

    def give_back(self, share: float, spent: float) -> None:
        """Return a worker's share to the pool, except for the amount that the worker has spent."""
        self.reserved = max(0.0, self.reserved - share)
        self.spent += spent


@dataclass(frozen=True)
class _Given:
    """One worker's reserved USD and tokens; None for an amount that the run does not limit."""

    budget: float | None = None
    tokens: float | None = None


class Budget:
    """The run's budget in USD and in tokens, each of which may be unlimited. Not thread-safe."""

    def __init__(self, config: ParallelConfig) -> None:
        """Start with the run's full budget."""
        budget, tokens = config.budget_total, config.tokens_total
        self.budget = None if budget is None else BudgetPool(budget, _LEAST_BUDGET)
        self.tokens = None if tokens is None else BudgetPool(tokens, _LEAST_TOKENS)
        self._config = config
        self._given: dict[int, _Given] = {}
        self._settled: dict[int, _Given] = {}

    def has(self, number: int) -> bool:
        """Return whether a worker has a reserved share."""
        return number in self._given

    def allot(
        self, number: int, config: ParallelConfig, waiting: int, *, runs: bool = False
    ) -> BudgetShare | None:
        """Return a worker's share, which is for all its attempts; None if too little is left.

        Args:
            number: The worker. Further calls return the same share.
            config: The worker's settings.
            waiting: Number of workers without a share, including this worker.
            runs: Whether the worker runs already; it gets a share of 0 if nothing is left.
        """
        if number not in self._given:
            budget = _share(self.budget, waiting, config.budget_per_worker, runs=runs)
            tokens = _share(self.tokens, waiting, config.tokens_per_worker, runs=runs)
            found = _Given(budget, tokens)
            if (self.budget is not None and budget is None) or (
                self.tokens is not None and tokens is None
            ):
                self._take_back(found, 0.0, 0.0)
                return None
            self._given[number] = found
        given = self._given[number]
        return BudgetShare(
            config.budget_per_worker if given.budget is None else given.budget,
            config.tokens_per_worker if given.tokens is None else int(given.tokens),
        )

    def settle(self, result: WorkerResult) -> None:
        """Return a worker's unspent share to the budget; shares of unknown cost count as spent."""
        given = self._given.pop(result.worker_id, _Given())
        has_run = result.started_at is not None or result.attempts > 1
        spent = self._equal_share() if given == _Given() else given
        budget = (spent.budget or 0.0) if has_run and not result.cost_known else result.cost
        tokens = (spent.tokens or 0.0) if has_run and result.tokens is None else result.tokens
        self._take_back(given, budget, tokens or 0.0)
        self._settled[result.worker_id] = _Given(budget, tokens or 0.0)

    def _equal_share(self) -> _Given:
        """Return about what an earlier process gave to a worker, which is not recorded."""
        config, number, full = self._config, job_count(self._config), Budget(self._config)
        return _Given(
            _share(full.budget, number, config.budget_per_worker, runs=True),
            _share(full.tokens, number, config.tokens_per_worker, runs=True),
        )

    def reopen(self, number: int) -> None:
        """Give up a worker's share, or what it has spent: its next share is for that, too."""
        settled = self._settled.pop(number, _Given())
        given = self._given.pop(number, _Given())
        self._take_back(given, -(settled.budget or 0.0), -(settled.tokens or 0.0))

    def _take_back(self, given: _Given, budget: float, tokens: float) -> None:
        if self.budget is not None:
            self.budget.give_back(given.budget or 0.0, budget)
        if self.tokens is not None:
            self.tokens.give_back(given.tokens or 0.0, tokens)


def _share(
    pool: BudgetPool | None, waiting: int, most: float | None, *, runs: bool
) -> float | None:
    if pool is None:
        return None
    given = pool.share(waiting, most=most)
    return 0.0 if given is None and runs else given
