"""Whether a worker may start now: what its provider takes, and what the run may still spend."""

import time

from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.scheduling.budget import Budget, BudgetShare
from orchestrator.scheduling.rate_limits import RateLimiter, Start
from orchestrator.worker.attempts import RetryLater
from orchestrator.worker.context import RunContext, of_worker, provider_for
from orchestrator.worker_spec import WorkerSpec


class StartGate:
    """Of one run; asked by the thread that starts its workers."""

    def __init__(self, run: RunContext) -> None:
        """Begin."""
        config = run.config
        self._run = run
        self._patience = config.rate_limit_wait
        self._funds = Budget(config)
        self._starts: dict[int, Start] = {}
        self._providers: dict[int, str] = {}
        self._governor = RateLimiter(
            providers=config.providers,
            slots=config.workers,
            patience=self._patience,
            emit=run.emit,
            full=not run.resumed,
        )

    def is_open(self, spec: WorkerSpec) -> bool:
        """Return whether a worker's provider takes another one now."""
        return self._governor.wait(self._provider(spec), time.monotonic()) <= 0

    def admit(self, spec: WorkerSpec, others: int, *, runs: bool) -> BudgetShare | None:
        """Let a worker start, with its share; None when nothing is left to spend.

        Args:
            spec: The worker.
            others: Those that wait for a share as well.
            runs: It runs already, and is gone on with.
        """
        own = of_worker(self._run, spec).config
        given = self._funds.allot(spec.worker_id, own, others + 1, runs=runs)
        if given is not None:
            provider, now = self._provider(spec), time.monotonic()
            self._starts[spec.worker_id] = self._governor.started(provider, now, anew=not runs)
        return given

    def has_share(self, spec: WorkerSpec) -> bool:
        """Return whether a worker was given its share already."""
        return self._funds.has(spec.worker_id)

    def note(self, spec: WorkerSpec, came: WorkerResult | RetryLater) -> None:
        """Take note of how an attempt ended, or of a worker that never began."""
        refused = (
            came.refused if isinstance(came, RetryLater) else came.reason is Reason.RATE_LIMITED
        )
        resets_in = came.resets_in if isinstance(came, RetryLater) else came.retry_after
        start, now = self._starts.pop(spec.worker_id, None), time.monotonic()
        if start is not None and refused and self._patience:
            pause = self._governor.limited(start, now, resets_in)
            if pause is not None:
                self._run.pace.pause(pause.provider, pause.until)
        elif start is not None:
            succeeded = isinstance(came, WorkerResult) and came.status is Status.SUCCESS
            self._governor.ended(start, now, succeeded=succeeded)
        if isinstance(came, WorkerResult):
            self._funds.settle(came)

    def _provider(self, spec: WorkerSpec) -> str:
        if spec.worker_id not in self._providers:
            self._providers[spec.worker_id] = provider_for(self._run, spec)
        return self._providers[spec.worker_id]
