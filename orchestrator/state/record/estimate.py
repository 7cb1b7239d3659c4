"""Estimate when a run ends, from the workers that have ended."""

from collections.abc import Sequence
from heapq import heapify, heapreplace

from orchestrator.state.record.run_view import RunView

_MINUTE, _HOUR = 60, 3600


def estimate(run: RunView) -> str:
    """Return when a run ends, such as `about 4 min left`; empty before a worker has ended."""
    ended, running, waiting = [], [], 0
    for worker in run.workers:
        if worker.result is None and worker.began_at is None:
            waiting += 1
        elif worker.result is None and worker.began_at is not None:
            running.append((run.until - worker.began_at).total_seconds())
        elif worker.started_at is not None and worker.began_at is not None:
            ended.append((worker.phases[-1].end - worker.began_at).total_seconds())
    seconds = seconds_left(ended, running, waiting, run.slots or 0)
    return "" if seconds is None else time_left(seconds)


def seconds_left(
    ended: Sequence[float], running: Sequence[float], waiting: int, slots: int
) -> float | None:
    """Return the estimated seconds until all workers have ended; None if there is no estimate.

    A worker that has not started is expected to take as long as those that have ended took on
    average, and a running worker as long as those that took longer than it has been running. If it
    has been running for much longer than all, it is expected to take as long again.

    Args:
        ended: Seconds that the workers which have ended took.
        running: Seconds for which each running worker has been running.
        waiting: Number of workers that have not started.
        slots: Maximum number of workers at the same time.
    """
    if not ended or not (running or waiting):
        return None
    mean = sum(ended) / len(ended)
    ends = [_rest(ended, seconds) for seconds in running]
    ends += [0.0] * max(slots - len(ends), 1 - len(ends), 0)
    heapify(ends)
    for _ in range(waiting):
        heapreplace(ends, ends[0] + mean)
    return max(ends)


def _rest(ended: Sequence[float], seconds: float) -> float:
    if seconds > 1.5 * max(ended):
        return seconds
    longer = [took for took in ended if took >= seconds]
    return sum(longer) / len(longer) - seconds if longer else 0.0


def time_left(seconds: float) -> str:
    """Return an estimate in words: `about 4 min left`."""
    if seconds < _MINUTE:
        return "less than a minute left"
    if seconds < _HOUR:
        return f"about {round(seconds / _MINUTE)} min left"
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return f"about {hours} h {minutes} min left"
