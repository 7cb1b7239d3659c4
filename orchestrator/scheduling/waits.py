"""Report why workers do not start yet."""

from collections.abc import Mapping

from orchestrator.events import Emit, WorkerWaiting
from orchestrator.text.quantities import slots_in_use
from orchestrator.workflow.order import Wait


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
