"""When a worker may start, for the sake of the model's API: one judgement for all of a run.

Pure: whoever asks says what time it is, by a clock that is never set back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.config.run import Provider
from orchestrator.events import Emit, ProviderPaused, SlotsChanged, ignore
from orchestrator.execution.token_bucket import Bucket, bucket_of

FIRST_PAUSE: Final = 5.0
"""Seconds, where nobody says when the provider takes requests again; each pause that did not help
is followed by one of twice its length."""
LONGEST_PAUSE: Final = 300.0
"""Seconds that they grow to."""
REPEATED: Final = 600.0
"""Seconds after a pause in which another one means that too many run at one time."""
SUCCESSES: Final = 2
"""Workers that must succeed before one more may run at one time."""
QUIET: Final = 60.0
"""Seconds without another pause that do as well."""
_MARGIN: Final = 1.0
"""Seconds on top of what a provider says: its clock is another."""


@dataclass(frozen=True)
class Start:
    """A worker that runs: whoever began it says how it ended."""

    provider: str
    at: float


@dataclass(frozen=True)
class Pause:
    """Nobody starts who uses that provider."""

    provider: str
    until: float
    known: bool
    """Whether the provider said so; else it is a guess."""


@dataclass
class _State:
    """What is known of one provider."""

    bucket: Bucket | None
    slots: int
    """Workers that may run at one time."""
    running: int = 0
    paused_at: float = -math.inf
    paused_until: float = -math.inf
    pauses: int = 0
    """In a row, none of which helped."""
    successes: int = 0
    changed_at: float = -math.inf


@dataclass
class RateLimiter:
    """Knows every provider of a run; asked by one thread."""

    providers: Mapping[str, Provider]
    slots: int
    """Workers that the run may have at one time."""
    patience: float
    """Seconds that a pause may take: a worker's word can hold the others up no longer."""
    emit: Emit = ignore
    full: bool = True
    """Whether no worker started a moment ago."""
    _states: dict[str, _State] = field(default_factory=dict)

    def wait(self, provider: str, now: float) -> float:
        """Return the seconds until a worker may start; infinity: not before another one ends."""
        state = self._state(provider)
        if now < state.paused_until:
            return state.paused_until - now
        self._recover_with_time(provider, state, now)
        if state.running >= state.slots:
            return math.inf
        return 0.0 if state.bucket is None else state.bucket.wait(now)

    def started(self, provider: str, now: float, *, anew: bool = True) -> Start:
        """Take note of a start.

        Args:
            provider: Whom it uses.
            now: The moment.
            anew: Or it goes on with what another process had started.
        """
        state = self._state(provider)
        state.running += 1
        if anew and state.bucket is not None:
            state.bucket.take(now)
        return Start(provider, now)

    def limited(self, start: Start, now: float, resets_in: float | None) -> Pause | None:
        """Take note of a worker that its provider refused; pause that for all.

        Many that are refused at one time are one event.

        Args:
            start: The worker's.
            now: The moment.
            resets_in: Seconds after which requests are taken again, as far as it is known.

        Returns:
            None: that is too long to wait for, and nobody is to.
        """
        state = self._state(start.provider)
        running = state.running
        state.running -= 1
        state.successes = 0
        if resets_in is not None and resets_in > self.patience:
            return None
        if now >= state.paused_until and start.at > state.paused_at:
            self._note_burst(start.provider, state, now, running)
        length = self._guess(state) if resets_in is None else resets_in + _MARGIN
        return self._pause(start.provider, state, now, length, known=resets_in is not None)

    def ended(self, start: Start, now: float, *, succeeded: bool) -> None:
        """Take note of a worker that ended in any other way."""
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

    def _note_burst(self, name: str, state: _State, now: float, running: int) -> None:
        """Wait longer if the last pause was no help, with fewer if it is not long ago."""
        state.pauses += 1
        fewer = max(1, min(state.slots, running) // 2)
        if now - state.paused_until < REPEATED and fewer < state.slots:
            self._change(name, state, fewer, now)

    def _guess(self, state: _State) -> float:
        doubled = min(max(state.pauses - 1, 0), 10)
        return min(FIRST_PAUSE * 2.0**doubled, LONGEST_PAUSE, self.patience)

    def _pause(self, name: str, state: _State, now: float, length: float, *, known: bool) -> Pause:
        begins = now >= state.paused_until
        until = now + length
        if begins:
            state.paused_at = now
        elif not known:
            # A guess was made for all of them.
            until = state.paused_until
        is_news = until > state.paused_until + (0.0 if begins else FIRST_PAUSE)
        state.paused_until = max(until, state.paused_until)
        if is_news:
            self.emit(ProviderPaused(provider=name, seconds=round(until - now, 3), known=known))
        return Pause(name, state.paused_until, known)

    def _recover_with_time(self, name: str, state: _State, now: float) -> None:
        since = max(state.changed_at, state.paused_until)
        if state.slots < self.slots and now - since >= QUIET:
            self._change(name, state, state.slots + 1, now)

    def _change(self, name: str, state: _State, slots: int, now: float) -> None:
        state.slots, state.successes, state.changed_at = slots, 0, now
        self.emit(SlotsChanged(provider=name, slots=slots, most=self.slots))
