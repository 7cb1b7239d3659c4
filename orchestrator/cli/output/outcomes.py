"""Format how a worker ended."""

from orchestrator.results import Reason, Status, WorkerResult
from orchestrator.text.sanitize import one_line


def never_ran(result: WorkerResult) -> bool:
    """Return whether a task of a workflow was skipped because of the outcomes of other tasks."""
    is_unneeded = result.status is Status.SUCCESS and result.started_at is None
    return result.name is not None and (is_unneeded or result.reason is Reason.DEPENDENCY)


def outcome(result: WorkerResult) -> str:
    """Return a worker's status, reason and attempts: `failed (oom), attempt 2`."""
    reason = f" ({result.reason.value})" if result.reason else ""
    attempt = f", attempt {result.attempts}" if result.attempts > 1 else ""
    return result.status.value + reason + attempt


def explanation(result: WorkerResult) -> str:
    """Return a worker's message as the end of a line; empty if it only repeats the reason."""
    if not result.message or result.message == result.reason:
        return ""
    return f": {one_line(result.message)}"
