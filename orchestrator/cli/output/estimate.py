"""Estimate when a run ends, from the workers that have ended."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from heapq import heapify, heapreplace

from orchestrator.events import Event, RunStarted, WorkerDone, WorkerPreparing, WorkerStarted

_MINUTE, _HOUR = 60, 3600


class Estimate:
    """Estimates the end of a run from the run's events. Not thread-safe."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._slots = 0
        self._waiting: set[int] = set()
        self._running: dict[int, datetime] = {}
        self._ended: list[float] = []

    def note(self, event: Event) -> None:
        """Process one event."""
        match event:
            case RunStarted():
                self._slots = event.slots
                self._waiting = {spec.worker_id for spec in event.workers}
                self._running = {}
            case WorkerPreparing() | WorkerStarted():
                self._waiting.discard(event.worker_id)
                self._running.setdefault(event.worker_id, event.at)
            case WorkerDone(result=result):
                self._waiting.discard(result.worker_id)
                start = self._running.pop(result.worker_id, None)
                if start is not None and result.started_at is not None:
                    self._ended.append((event.at - start).total_seconds())
            case _:
                pass

    def text(self) -> str:
        """Return the estimate, such as `about 4 min left`; empty before a worker has ended."""
        now = self._now()
        running = [(now - start).total_seconds() for start in self._running.values()]
        seconds = seconds_left(self._ended, running, len(self._waiting), self._slots)
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
    longer = [one for one in ended if one >= seconds]
    return sum(longer) / len(longer) - seconds if longer else 0.0


def time_left(seconds: float) -> str:
    """Return an estimate in words: `about 4 min left`."""
    if seconds < _MINUTE:
        return "less than a minute left"
    if seconds < _HOUR:
        return f"about {round(seconds / _MINUTE)} min left"
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return f"about {hours} h {minutes} min left"
