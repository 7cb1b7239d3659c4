"""Choose the events of a run of which the user is notified, and create the messages."""

from collections import Counter
from collections.abc import Mapping

from orchestrator.events import Event, Intervention, RunDone, WorkerDone
from orchestrator.results import Reason, RunResult, Status, WorkerResult
from orchestrator.text.sanitize import one_line

MOST_LISTED = 100
"""Maximum number of workers that the message at a run's end lists; its field `counts` includes all
of them.
"""
_LONGEST = 500
"""Maximum number of characters of a worker's own message in a notification."""
_FAILURES = frozenset({Status.FAILED, Status.TIMEOUT})
_NOT_OF_ITS_OWN = frozenset({Reason.CANCELLED, Reason.DEPENDENCY})
"""Reasons of workers that failed because of another worker; only the message at the run's end lists
them.
"""

Message = Mapping[str, object]


def notification(run_id: str, event: Event, *, is_open: bool = False) -> Message | None:
    """Return the notification for an event; None for events without notification.

    Args:
        run_id: The id of the run.
        event: The redacted event.
        is_open: Whether the run stopped before its end, and can be resumed.
    """
    match event:
        case Intervention():
            return {"run_id": run_id, **event.model_dump(mode="json")}
        case WorkerDone(result=result) if not is_open and _failed(result):
            return {"run_id": run_id, "type": "worker_failed", **_worker(result)}
        case RunDone(result=result):
            return {"run_id": run_id, "type": "run_done", **_run(result), "resumable": is_open}
        case _:
            return None


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
    others = [one for one in result.results if one.status is not Status.SUCCESS]
    counts = Counter(one.status.value for one in result.results)
    return {
        "status": result.status.value,
        "duration": result.duration,
        "cost": result.cost,
        "counts": {status.value: counts[status.value] for status in Status},
        "not_successful": [_worker(one) for one in others[:MOST_LISTED]],
    }
