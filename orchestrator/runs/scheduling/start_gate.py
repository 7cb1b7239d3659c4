"""Decide whether a worker may start now, by rate limits and budget; report why workers wait."""

import time
from collections.abc import Mapping

from orchestrator.base.events import Emit, WorkerWaiting
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.text.quantities import slots_in_use
from orchestrator.config.workflow.order import Wait
from orchestrator.runs.scheduling.budget import Budget
from orchestrator.runs.scheduling.rate_limits import RateLimiter, Start
from orchestrator.worker.budget_share import BudgetShare
from orchestrator.worker.context import RunContext, WorkerContext
from orchestrator.worker.turns.retry_later import RetryLater


class StartGate:
    """Decides whether a worker may start now. Not thread-safe."""

    def __init__(self, run: RunContext) -> None:
        """Start with the full budget and no running workers."""
        config = run.config
        self._run = run
        self._patience = config.rate_limit_wait
        self._budget = Budget(config)
        self._starts: dict[int, Start] = {}
        self._limiter = RateLimiter(
            providers=config.providers,
            slots=config.workers,
            patience=self._patience,
            emit=run.emit,
            full=not run.resumed,
        )

    def is_open(self, worker: WorkerContext) -> bool:
        """Return whether the provider of a worker accepts another worker now."""
        return self._limiter.wait(worker.provider, time.monotonic()) <= 0

    def why_closed(self, provider: str) -> Wait | None:
        """Return why a provider's limits prevent a worker's start now; None if they do not."""
        why = self._limiter.why_closed(provider, time.monotonic())
        return None if why is None else Wait("provider", why)

    def admit(self, worker: WorkerContext, others: int, *, runs: bool) -> BudgetShare | None:
        """Record a worker's start and return its share of the budget; None if too little is left.

        Args:
            worker: The worker.
            others: Number of other workers without a share.
            runs: Whether the worker runs already, because the run was resumed.
        """
        given = self._budget.allot(worker.number, worker.config, others + 1, runs=runs)
        if given is not None:
            now = time.monotonic()
            self._starts[worker.number] = self._limiter.note_start(
                worker.provider, now, new=not runs
            )
        return given

    def has_share(self, worker: WorkerContext) -> bool:
        """Return whether a worker has a share of the budget."""
        return self._budget.has(worker.number)

    def note(self, number: int, came: WorkerResult | RetryLater) -> None:
        """Record an attempt's result (also if it never started), or that a retry follows."""
        refused = (
            came.refused if isinstance(came, RetryLater) else came.reason is Reason.RATE_LIMITED
        )
        resets_in = came.resets_in if isinstance(came, RetryLater) else came.retry_after
        start, now = self._starts.pop(number, None), time.monotonic()
        if start is not None and refused and self._patience:
            until = self._limiter.note_refusal(start, now, resets_in)
            if until is not None:
                self._run.pace.pause(start.provider, until)
        elif start is not None:
            succeeded = isinstance(came, WorkerResult) and came.status is Status.SUCCESS
            self._limiter.note_end(start, now, succeeded=succeeded)
        if isinstance(came, WorkerResult):
            self._budget.settle(came)
        elif came.next_turn:
            self._budget.reopen(number)

    def reopen(self, number: int) -> None:
        """Record that a worker which has ended begins another turn."""
        self._budget.reopen(number)


class WaitReports:
    """Emits an event when the reason changes for which a worker waits. Not thread-safe."""

    def __init__(self, emit: Emit, slots: int) -> None:
        """Start without any report.

        Args:
            emit: Gets the events.
            slots: Maximum number of workers at the same time.
        """
        self._emit = emit
        self.slot = Wait("slot", slots_in_use(slots))
        """The reason of workers that wait only for a free slot."""
        self._known: dict[int, Wait] = {}

    def note(self, waits: Mapping[int, Wait]) -> None:
        """Emit an event for each worker whose reason to wait has changed."""
        for number, wait in waits.items():
            known = self._known.get(number, self.slot)
            # The free memory of a machine changes all the time.
            same_shortage = wait.cause == known.cause == "machine"
            if wait != known and not same_shortage:
                self._known[number] = wait
                self._emit(WorkerWaiting(worker_id=number, cause=wait.cause, reason=wait.reason))

    def forget(self, number: int) -> None:
        """Forget why a worker waited, because the worker starts now."""
        self._known.pop(number, None)
