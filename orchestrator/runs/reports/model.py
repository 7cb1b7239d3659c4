"""What the formats of reports render: the model of a run, with its judgement and its merge.

To follow a live run, read it again.
"""

from dataclasses import dataclass
from datetime import datetime

from orchestrator.base.results import Reason, Status
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.judging.store import read_judgement
from orchestrator.review.landing.merged import Merged
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.plan import add_plan
from orchestrator.state.record.run_view import RunView
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import read_outline
from orchestrator.state.run_record import read_record
from orchestrator.state.worker.checkpoints import Checkpoints


@dataclass(kw_only=True)
class RunReport(RunView):
    """A run, and what was decided about the work of its workers."""

    judgement: Judgement | None = None
    """The run's latest judgement; None if its workers were not judged."""
    merged: Merged | None = None
    """The merge of the run's branches; only in a report of the command that merged them."""
    junit: tuple[str, ...] = ()
    """Artifacts of workers that are JUnit files, whose tests belong to the JUnit report."""

    @property
    def bad(self) -> tuple[WorkerView, ...]:
        """Workers that ended without success; failures caused by another worker come last."""
        found = [worker for worker in self.workers if worker.status in _SEVERITY]
        return tuple(sorted(found, key=lambda worker: (
            worker.reason in _CONSEQUENCES, not worker.spec.required,
            _SEVERITY.get(worker.status or Status.FAILED, 0), worker.worker_id,
        )))  # fmt: skip

    @property
    def unfinished(self) -> tuple[WorkerView, ...]:
        """Workers without a result."""
        return tuple(worker for worker in self.workers if worker.result is None)


_SEVERITY = {Status.FAILED: 0, Status.TIMEOUT: 1, Status.PARTIAL: 2}
ERRORS = frozenset({
    Reason.ENGINE_ERROR, Reason.SETUP_FAILED, Reason.SERVICE_DIED, Reason.INTERNAL_ERROR,
})  # fmt: skip
"""Reasons that are errors of the machine or its settings, and not failures of the task."""
_CONSEQUENCES = frozenset({Reason.DEPENDENCY, Reason.CANCELLED})
"""Reasons of workers that failed only because of another worker."""


def read_run(directory: RunDirectory, *, now: datetime | None = None) -> RunReport | None:
    """Read a run for a report; return None if its record is missing or has an unknown format.

    Args:
        directory: The run's directory.
        now: End of the recorded time of a live run. Default: the current time.
    """
    outline = read_outline(directory)
    if outline is None:
        return None
    with RunHistory(directory, outline) as history:
        view = history.snapshot(now)
    add_plan(view, read_record(directory))
    view.slots = view.slots or len(view.by_number)
    for worker in view.workers:
        archived = (
            Checkpoints(path).attempt_result() for _, path in directory.attempts(worker.worker_id)
        )
        worker.attempts = tuple(attempt for attempt in archived if attempt is not None)
    return RunReport(**vars(view), judgement=read_judgement(directory.path))
