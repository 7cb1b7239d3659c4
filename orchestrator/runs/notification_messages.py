"""Choose the events of a run of which the user is notified, and create the messages."""

from collections import Counter
from collections.abc import Mapping

from orchestrator.events import Event, Intervention, RunDone, WorkerDone
from orchestrator.results import Reason, RunResult, Status, WorkerResult, ended_word
from orchestrator.text.sanitize import one_line

MOST_LISTED = 100
"""Maximum number of workers that the message at a run's end lists; the message's field `counts`
includes all workers.
"""
_LONGEST = 500
"""Maximum number of characters of a worker's own message in a notification."""
_FAILURES = frozenset({Status.FAILED, Status.TIMEOUT})
_NOT_OF_ITS_OWN = frozenset({Reason.CANCELLED, Reason.DEPENDENCY})
"""Reasons of failures that a worker did not cause: cancellation, or failure of another task. Such
workers are only listed in the message at the run's end.
"""

Message = Mapping[str, object]


def notification(run_id: str, event: Event, *, is_open: bool = False) -> Message | None:
    """Return the notification for an event; None for events without notification.

    Args:
        run_id: The id of the run.
        event: The redacted event.
        is_open: Whether the run stopped before all workers ended, and can be resumed.
    """
    match event:
        case Intervention():
            text = f"run {run_id}: worker {event.worker_id} needs attention: {event.trigger}"
            return {"run_id": run_id, "text": text, **event.model_dump(mode="json")}
        case WorkerDone(result=result) if not is_open and _failed(result):
            text = f"run {run_id}: {_failure(result)}"
            return {"run_id": run_id, "type": "worker_failed", "text": text, **_worker(result)}
        case RunDone(result=result):
            done = {"run_id": run_id, "type": "run_done", "text": _end(result)}
            return {**done, **_run(result), "resumable": is_open}
        case _:
            return None


def _failure(result: WorkerResult) -> str:
    """Describe a worker's failure without the worker's own text, which could contain markup."""
    name = f" ({result.name})" if result.name else ""
    return f"worker {result.worker_id}{name} ended: {result.outcome}"


def _end(result: RunResult) -> str:
    passed = sum(worker.status is Status.SUCCESS for worker in result.results)
    counted = f"{passed} of {len(result.results)} workers succeeded"
    return f"run {result.run_id}: {ended_word(result.status, result.results)}, {counted}"


def _failed(result: WorkerResult) -> bool:
    return result.status in _FAILURES and result.reason not in _NOT_OF_ITS_OWN


def _worker(result: WorkerResult) -> Message:
    message = None if result.message is None else one_line(result.message, limit=_LONGEST)
    return {
        "worker_id": result.worker_id,
        "name": result.name,
        "status": result.status.value,
        "reason": None if result.reason is None else result.reason.value,
        "message": message,
        "branch": result.branch,
        "attempts": result.attempts,
        "duration": result.duration,
        "cost": result.cost,
    }


def _run(result: RunResult) -> Message:
    others = [worker for worker in result.results if worker.status is not Status.SUCCESS]
    counts = Counter(worker.status.value for worker in result.results)
    return {
        "status": result.status.value,
        "duration": result.duration,
        "cost": result.cost,
        "counts": {status.value: counts[status.value] for status in Status},
        "not_successful": [_worker(worker) for worker in others[:MOST_LISTED]],
    }
