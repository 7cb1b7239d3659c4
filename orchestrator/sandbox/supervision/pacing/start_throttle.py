"""Space out the starts of workers, because a model's API refuses too many simultaneous requests.

A worker whose turn has come does not start at once: creating its worktree and its setup take time.
So the rate of starts is enforced here, immediately before the container starts.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from orchestrator.base.errors import StartCancelledError
from orchestrator.base.events import WaitCause
from orchestrator.base.text.quantities import duration
from orchestrator.config.settings.run import Provider
from orchestrator.sandbox.supervision.pacing.token_bucket import Bucket, bucket_of

_GLANCE = 0.05
"""Seconds between two checks whether a waiting worker was cancelled."""


def _tell_nobody(cause: WaitCause, reason: str) -> None:
    """Ignore why a worker has to wait."""


class StartThrottle:
    """Delays the starts of workers: one at a time, with pauses, within providers' rate limits."""

    def __init__(
        self,
        gap: float,
        providers: Mapping[str, Provider] | None = None,
        *,
        just_started: bool = False,
    ) -> None:
        """Allow a start every `gap` seconds, and no more starts than the rate limits of providers.

        With `just_started`, the first start waits too, as another process may just have started
        a worker.
        """
        self._gap = gap
        self._turn = threading.Lock()
        self._next = time.monotonic() + gap if just_started else 0.0
        self._providers, self._full = providers or {}, not just_started
        self._buckets: dict[str, Bucket | None] = {}
        self._paused: dict[str, float] = {}
        self._counting = threading.Lock()

    def pause(self, provider: str, until: float) -> None:
        """Allow no start of a provider's workers before a moment on the monotonic clock."""
        with self._counting:
            self._paused[provider] = until

    @contextmanager
    def turn(
        self,
        is_cancelled: Callable[[], bool],
        provider: str = "",
        *,
        tell: Callable[[WaitCause, str], None] = _tell_nobody,
    ) -> Iterator[None]:
        """Wait until the worker may start; the caller starts it in the `with` block.

        With a pause between starts, no other worker starts before the block has ended.

        Args:
            is_cancelled: Returns whether the worker was cancelled.
            provider: The provider that the worker uses.
            tell: Gets each cause for which the worker has to wait, once, with an explanation.

        Raises:
            StartCancelledError: The worker was cancelled.
        """
        if (rest := self._wait(provider)) > 0:
            tell("provider", f"no worker of provider `{provider}` may start yet")
        while rest > 0:
            _check(is_cancelled)
            time.sleep(min(rest, _GLANCE))
            rest = self._wait(provider)
        if not self._gap:
            yield
            return
        if self._turn.locked() or self._next > time.monotonic():
            tell("pace", f"workers start at least {duration(self._gap)} apart")
        while not self._turn.acquire(timeout=_GLANCE):
            _check(is_cancelled)
        try:
            while (rest := self._next - time.monotonic()) > 0:
                _check(is_cancelled)
                time.sleep(min(rest, _GLANCE))
            _check(is_cancelled)
            try:
                yield
            finally:
                self._next = time.monotonic() + self._gap
        finally:
            self._turn.release()

    def _wait(self, provider: str) -> float:
        """Take a token from a provider's bucket, or return the seconds until there is a token."""
        with self._counting:
            if provider not in self._buckets:
                self._buckets[provider] = bucket_of(self._providers, provider, full=self._full)
            bucket, now = self._buckets[provider], time.monotonic()
            rest = max(0.0, self._paused.get(provider, now) - now)
            rest = rest if bucket is None or rest > 0 else bucket.wait(now)
            if bucket is not None and rest <= 0:
                bucket.take(now)
        return rest


def _check(is_cancelled: Callable[[], bool]) -> None:
    if is_cancelled():
        raise StartCancelledError("the start was cancelled", key="start.cancelled")
