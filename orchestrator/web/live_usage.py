"""Measure CPU and memory of the workers of live runs while a page shows them."""

import threading
import time
from collections.abc import Callable, Mapping

from orchestrator.engine.protocol import ContainerEngine
from orchestrator.events import Event, WorkerMeasured
from orchestrator.record.history import RunHistory
from orchestrator.record.usage_monitor import UsageMonitor

INTERVAL = 2.0
"""Minimum number of seconds between two measurements of a run."""
PATIENCE = 10.0
"""Seconds without a request of a page after which the measurements of a run end."""
NOTHING: Mapping[int, WorkerMeasured] = {}


class LiveUsage:
    """Measures the live runs that pages show, in one thread per run, not per page. Thread-safe."""

    def __init__(self, connect: Callable[[], ContainerEngine]) -> None:
        """Store the argument.

        Args:
            connect: Connects to the container engine; called again after it raised an error.
        """
        self._connect = connect
        self._runs: dict[str, _RunUsage] = {}
        self._lock = threading.Lock()

    def of(self, history: RunHistory) -> Mapping[int, WorkerMeasured]:
        """Return the latest measurements of a run's workers; the first call returns none."""
        with self._lock:
            usage = self._runs.get(history.run_id)
            if usage is None or not usage.is_wanted():
                usage = self._runs[history.run_id] = _RunUsage()
                usage.start(history, self._connect)
            usage.asked_at = time.monotonic()
            self._runs = {run: usage for run, usage in self._runs.items() if usage.is_wanted()}
        return dict(usage.latest)


class _RunUsage:
    """The latest measurements of one run's workers."""

    def __init__(self) -> None:
        self.latest: dict[int, WorkerMeasured] = {}
        self.asked_at = time.monotonic()

    def start(self, history: RunHistory, connect: Callable[[], ContainerEngine]) -> None:
        # The thread of the monitor ends when no page asks any more.
        monitor = UsageMonitor(
            history, self._note, connect=connect, interval=INTERVAL, wanted=self.is_wanted
        )
        monitor.__enter__()

    def is_wanted(self) -> bool:
        return time.monotonic() - self.asked_at < PATIENCE

    def _note(self, event: Event) -> None:
        if isinstance(event, WorkerMeasured):
            self.latest[event.worker_id] = event
