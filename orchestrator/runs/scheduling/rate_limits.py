"""Decide when a worker may start under the rate limits of model APIs. Pure functions and data.

The caller passes the current time, from a monotonic clock.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.base.events import Emit, ProviderPaused, SlotsChanged, ignore
from orchestrator.base.text.quantities import count
from orchestrator.config.settings.run import Provider
from orchestrator.sandbox.supervision.pacing.token_bucket import Bucket, bucket_of

FIRST_PAUSE: Final = 5.0
"""Seconds for which a provider is paused after refusing requests, if it reports no time. If
requests are refused again after a pause, the next pause is twice as long.
"""
LONGEST_PAUSE: Final = 300.0
"""Maximum length in seconds of a pause whose length the provider did not report."""
REPEATED: Final = 600.0
"""Seconds after a pause in which another refusal means that too many workers run at the same time.
"""
SUCCESSES: Final = 2
"""Number of successful workers after which the limit of simultaneous workers grows by one."""
QUIET: Final = 60.0
"""Number of seconds without a refusal after which the limit of simultaneous workers grows by one.
"""
_MARGIN: Final = 1.0
"""Seconds that are added to the time reported by a provider, because its clock may differ."""


@dataclass(frozen=True)
class Start:
    """Record of a worker's start; the caller passes it back when the worker has ended."""

    provider: str
    at: float


@dataclass
class _State:
    """The limits and pauses of one model provider."""

    bucket: Bucket | None
    slots: int
    """Number of workers that may use the provider at the same time."""
    running: int = 0
    paused_at: float = -math.inf
    paused_until: float = -math.inf
    pauses: int = 0
    """Number of successive pauses after which the provider still refused requests."""
    successes: int = 0
    changed_at: float = -math.inf


@dataclass
class RateLimiter:
    """Tracks the rate limits of all providers that a run's workers use. Not thread-safe."""

    providers: Mapping[str, Provider]
    slots: int
    """Maximum number of simultaneous workers of the run."""
    patience: float
    """Maximum seconds of a pause, so that one worker's output cannot delay others for longer."""
    emit: Emit = ignore
    full: bool = True
    """Whether the token buckets start full, because no worker started immediately before."""
    _states: dict[str, _State] = field(default_factory=dict)

    def wait(self, provider: str, now: float) -> float:
        """Return the seconds until a worker may start; infinity if another must end first."""
        state = self._state(provider)
        if now < state.paused_until:
            return state.paused_until - now
        since = max(state.changed_at, state.paused_until)
        if state.slots < self.slots and now - since >= QUIET:
            self._change(provider, state, state.slots + 1, now)
        if state.running >= state.slots:
            return math.inf
        return 0.0 if state.bucket is None else state.bucket.wait(now)

    def why_closed(self, provider: str, now: float) -> str | None:
        """Return why a provider's limits prevent a worker's start now; None if they do not."""
        state = self._state(provider)
        if now < state.paused_until:
            return f"provider `{provider}` refuses requests"
        if state.running >= state.slots:
            workers = count(state.slots, "worker")
            most = f"no more than {workers} of provider `{provider}` may run now"
            return most if state.slots < self.slots else None
        if state.bucket is not None and state.bucket.wait(now) > 0:
            return f"the limit of starts for provider `{provider}` is reached"
        return None

    def note_start(self, provider: str, now: float, *, new: bool = True) -> Start:
        """Record that a worker starts.

        Args:
            provider: The provider that the worker uses.
            now: The current time.
            new: Whether the worker starts now, and was not started by an earlier process.
        """
        state = self._state(provider)
        state.running += 1
        if new and state.bucket is not None:
            state.bucket.take(now)
        return Start(provider, now)

    def note_refusal(self, start: Start, now: float, resets_in: float | None) -> float | None:
        """Record that a provider refused a worker, and pause the provider for all workers.

        Refusals of several workers at the same time count as one event.

        Args:
            start: The worker's start.
            now: The current time.
            resets_in: Seconds until the provider accepts requests again; None if unknown.

        Returns:
            The end of the pause; None if the pause would be too long to wait for.
        """
        state = self._state(start.provider)
        running = state.running
        state.running -= 1
        state.successes = 0
        if resets_in is not None and resets_in > self.patience:
            return None
        if now >= state.paused_until and start.at > state.paused_at:
            # Later pauses get longer; soon after a pause, fewer workers may run.
            state.pauses += 1
            fewer = max(1, min(state.slots, running) // 2)
            if now - state.paused_until < REPEATED and fewer < state.slots:
                self._change(start.provider, state, fewer, now)
        if resets_in is None:
            doubled = min(max(state.pauses - 1, 0), 10)
            length = min(FIRST_PAUSE * 2.0**doubled, LONGEST_PAUSE, self.patience)
        else:
            length = resets_in + _MARGIN
        return self._pause(start.provider, state, now, length, known=resets_in is not None)

    def note_end(self, start: Start, now: float, *, succeeded: bool) -> None:
        """Record that a worker ended without being refused by its provider."""
        state = self._state(start.provider)
        state.running -= 1
        if not succeeded or start.at <= state.paused_at:
            return
        state.pauses = 0
        state.successes += 1
        if state.slots < self.slots and state.successes >= SUCCESSES:
            self._change(start.provider, state, state.slots + 1, now)

    def _state(self, name: str) -> _State:
        if name not in self._states:
            bucket = bucket_of(self.providers, name, full=self.full)
            self._states[name] = _State(bucket=bucket, slots=self.slots)
        return self._states[name]

    def _pause(self, name: str, state: _State, now: float, length: float, *, known: bool) -> float:
        begins = now >= state.paused_until
        until = now + length
        if begins:
            state.paused_at = now
        elif not known:
            # A provider refused several workers: the guessed pause applies to all of them.
            until = state.paused_until
        is_news = until > state.paused_until + (0.0 if begins else FIRST_PAUSE)
        state.paused_until = max(until, state.paused_until)
        if is_news:
            self.emit(ProviderPaused(provider=name, seconds=round(until - now, 3), known=known))
        return state.paused_until

    def _change(self, name: str, state: _State, slots: int, now: float) -> None:
        state.slots, state.successes, state.changed_at = slots, 0, now
        self.emit(SlotsChanged(provider=name, slots=slots, most=self.slots))
