"""Measure how long each step of a worker takes."""

import time
from collections.abc import Callable
from typing import Literal

from orchestrator.base.results import Timings

Step = Literal["prepare", "start", "setup", "agent", "stop", "harvest", "update", "checks"]


class StepTimes:
    """Stopwatch of one worker. Every moment belongs to exactly one step: the last that began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: dict[Step, float] = {}
        self._step: Step | None = None
        self._since = 0.0

    def restart(self) -> None:
        """Forget all steps, at the start of an attempt."""
        self._seconds.clear()
        self._step = None

    def begin(self, step: Step) -> None:
        """End the current step, and begin or continue another step."""
        now = self._clock()
        if self._step is not None:
            self._add(self._step, now - self._since)
        self._step, self._since = step, now

    def count_as_stop(self, seconds: float) -> None:
        """Count the last seconds of the agent as the step `stop`, because it was being stopped."""
        self._add("agent", -seconds)
        self._add("stop", seconds)

    def read(self) -> Timings | None:
        """Return the seconds that each step has taken so far; None before the first step."""
        if self._step is None:
            return None
        self.begin(self._step)
        return Timings(**{step: round(max(s, 0.0), 3) for step, s in self._seconds.items()})

    def _add(self, step: Step, seconds: float) -> None:
        self._seconds[step] = self._seconds.get(step, 0.0) + seconds
