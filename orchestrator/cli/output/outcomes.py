"""Format how a worker ended."""

from orchestrator.results import Reason, WorkerResult
from orchestrator.text.sanitize import one_line


def is_consequence(result: WorkerResult) -> bool:
    """Return whether a task did not run, for a reason that other tasks' results show already.

    False if a conflict kept the task from running: no other result shows the conflict.
    """
    return result.never_ran and result.reason is not Reason.CONFLICT


def explanation(result: WorkerResult) -> str:
    """Return a worker's message as the end of a line; empty if it only repeats the reason."""
    if not result.message or result.message == result.reason:
        return ""
    return f": {one_line(result.message)}"
