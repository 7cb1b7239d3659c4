"""Keep the starts of workers apart: a model's API refuses too many at one moment."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.errors import OrchestratorError

_GLANCE = 0.05
"""Seconds between two looks at whether the wait is still wanted."""


class CalledOffError(OrchestratorError):
    """Whoever waited for its turn is not to start any more."""


class Pace:
    """One start at a time, and so many seconds between one and the next."""

    def __init__(self, gap: float, *, just_started: bool = False) -> None:
        """Begin.

        Args:
            gap: Seconds; 0 keeps nobody waiting.
            just_started: Somebody else may have started a worker a moment ago.
        """
        self._gap = gap
        self._turn = threading.Lock()
        self._next = time.monotonic() + gap if just_started else 0.0

    @contextmanager
    def turn(self, called_off: Callable[[], bool]) -> Iterator[None]:
        """Wait for the moment to start, and keep all others waiting until that is done.

        Raises:
            CalledOffError: It is not to start any more.
        """
        if not self._gap:
            yield
            return
        while not self._turn.acquire(timeout=_GLANCE):
            _check(called_off)
        try:
            while (rest := self._next - time.monotonic()) > 0:
                _check(called_off)
                time.sleep(min(rest, _GLANCE))
            _check(called_off)
            try:
                yield
            finally:
                self._next = time.monotonic() + self._gap
        finally:
            self._turn.release()


def _check(called_off: Callable[[], bool]) -> None:
    if called_off():
        raise CalledOffError("called off")
