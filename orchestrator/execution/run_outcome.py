"""Record whether a run has ended, or must be resumed."""

import threading


class RunOutcome:
    """Whether a run must be resumed later, because Docker or the machine failed. Thread-safe."""

    def __init__(self) -> None:
        self._resumable = threading.Event()

    @property
    def resumable(self) -> bool:
        """Whether a worker's result was not stored, so that only a resumed run can create it."""
        return self._resumable.is_set()

    def leave_resumable(self) -> None:
        """Record that a worker's result could not be stored."""
        self._resumable.set()
