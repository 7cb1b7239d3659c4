"""Whether a run has ended, or is left for a resume."""

import threading


class RunOutcome:
    """Whether a run is to be resumed since its engine, or the machine, failed. Thread-safe."""

    def __init__(self) -> None:
        self._resumable = threading.Event()

    @property
    def resumable(self) -> bool:
        """Whether a worker has no result that lasts: a resumed run makes it."""
        return self._resumable.is_set()

    def leave_resumable(self) -> None:
        """Record that a worker has no result that lasts."""
        self._resumable.set()
