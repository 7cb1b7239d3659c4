"""Keep the starts of workers apart: a model's API refuses too many at one moment.

A worker that has a slot is not started yet: its worktree and its setup take their time. So the last
word on how fast starts may come is here, where the container is about to start.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from orchestrator.config.run import Provider
from orchestrator.errors import OrchestratorError
from orchestrator.execution.token_bucket import Bucket, bucket_of

_GLANCE = 0.05
"""Seconds between two looks at whether the wait is still wanted."""


class StartCancelledError(OrchestratorError):
    """Whoever waited for its turn is not to start any more."""


class StartThrottle:
    """One start at a time with so many seconds to the next, and as many as a provider takes."""

    def __init__(
        self,
        gap: float,
        providers: Mapping[str, Provider] | None = None,
        *,
        just_started: bool = False,
    ) -> None:
        """Begin.

        Args:
            gap: Seconds; 0 keeps nobody waiting.
            providers: Those that may have a rate limit.
            just_started: Somebody else may have started a worker a moment ago.
        """
        self._gap = gap
        self._turn = threading.Lock()
        self._next = time.monotonic() + gap if just_started else 0.0
        self._providers, self._full = providers or {}, not just_started
        self._buckets: dict[str, Bucket | None] = {}
        self._paused: dict[str, float] = {}
        self._counting = threading.Lock()

    def pause(self, provider: str, until: float) -> None:
        """Let nobody start before then who uses a provider: whoever is being prepared waits too."""
        with self._counting:
            self._paused[provider] = until

    @contextmanager
    def turn(self, called_off: Callable[[], bool], provider: str = "") -> Iterator[None]:
        """Wait for the moment to start, and keep all others waiting until that is done.

        Args:
            called_off: Whether it is not to start any more.
            provider: Whom the worker uses.

        Raises:
            CalledOffError: It is not to start any more.
        """
        while (rest := self._wait(provider)) > 0:
            _check(called_off)
            time.sleep(min(rest, _GLANCE))
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

    def _wait(self, provider: str) -> float:
        """Take a start out of a provider's bucket, or give the seconds until there is one."""
        with self._counting:
            if provider not in self._buckets:
                self._buckets[provider] = bucket_of(self._providers, provider, full=self._full)
            bucket, now = self._buckets[provider], time.monotonic()
            rest = max(0.0, self._paused.get(provider, now) - now)
            rest = rest if bucket is None or rest > 0 else bucket.wait(now)
            if bucket is not None and rest <= 0:
                bucket.take(now)
        return rest


def _check(called_off: Callable[[], bool]) -> None:
    if called_off():
        raise StartCancelledError("called off")
