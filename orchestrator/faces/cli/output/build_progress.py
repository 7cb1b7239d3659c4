"""Follow the build of an image: its step, and an estimate of the time left.

The daemon prints a line when a step begins, and whether the step's result is in its cache. The time
that each step took is stored in a file of the user; it is the estimate for the next build.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited
from orchestrator.state.record.estimate import time_left

_STEP = re.compile(r"Step (\d+)/(\d+) : ")
_CACHED = "---> Using cache"
_MOST_STEPS = 1000
_MOST_BYTES = 1024**2
_MOST_PLANS = 50

Plans = dict[str, dict[str, float]]
"""Seconds that each step took, by step number, for each build. A digest of the first step's line
identifies the build.
"""


class BuildProgress:
    """Derives the progress of image builds from the lines that the builds print."""

    def __init__(self, file: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the times of earlier builds.

        Args:
            file: The file with the times, which need not exist.
            clock: Returns the current time in seconds.
        """
        self._file = file
        self._clock = clock
        self._plans = _read(file)
        self._plan: dict[str, float] = {}
        self._step, self._steps = 0, 0
        self._began = clock()
        self._is_cached = False

    def note(self, line: str) -> None:
        """Process one line of output."""
        if found := _STEP.match(line):
            self._end_step()
            self._step, self._steps = int(found[1]), min(int(found[2]), _MOST_STEPS)
            if self._step == 1:
                digest = hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()[:16]
                self._plan = self._plans.pop(digest, {})
                self._plans[digest] = self._plan
        elif line.strip().startswith(_CACHED):
            self._is_cached = True

    def text(self) -> str:
        """Return the current step and the estimate; empty before the first step."""
        if not self._step:
            return ""
        text = f"step {self._step} of {self._steps}"
        rest = [self._plan.get(str(step)) for step in range(self._step, self._steps + 1)]
        known = [seconds for seconds in rest if seconds is not None]
        if len(known) < len(rest):
            # A later step was never measured.
            return text
        left = max(known[0] - (self._clock() - self._began), 0.0) + sum(known[1:])
        return f"{text}, {time_left(left)}" if left else text

    def _end_step(self) -> None:
        now = self._clock()
        if self._step and not self._is_cached:
            self._plan[str(self._step)] = round(now - self._began, 3)
        self._began, self._is_cached = now, False

    def end(self) -> None:
        """Store the times of the steps, after all builds succeeded."""
        self._end_step()
        self._step = 0
        latest = dict([*self._plans.items()][-_MOST_PLANS:])
        with suppress(OSError):  # the next build has no estimate
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(latest))


def _read(file: Path) -> Plans:
    try:
        found = json.loads(read_limited(file, most=_MOST_BYTES))
        return {
            plan: {number: float(seconds) for number, seconds in steps.items()}
            for plan, steps in found.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
