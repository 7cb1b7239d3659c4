"""Whether a run has ended, or must be resumed."""

import threading


class RunOutcome:
    """Whether a run must be resumed because its engine or the machine failed. Thread-safe."""

    def __init__(self) -> None:
        self._resumable = threading.Event()

    @property
    def resumable(self) -> bool:
        """Whether a worker has no durable result, which a resumed run must create."""
        return self._resumable.is_set()

    def leave_resumable(self) -> None:
        """Record that a worker has no durable result."""
        self._resumable.set()
