"""Run one case for each seed, and report how to repeat a case that failed."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

_LONGEST = 60.0
"""Maximum duration of a case, in seconds; most cases take 0.1 s."""
_MOST_FAILURES = 5


@dataclass
class Seeds:
    """The seeds to try, and the outcomes."""

    chosen: range | None = None
    """Seeds chosen on the command line; None for the first of them."""
    failures: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, case: Callable[[int], str], *, ordinary: int) -> None:
        """Run a case for each seed, and count the outcomes.

        Args:
            case: Takes a seed and returns its outcome; a failure is an AssertionError.
            ordinary: Number of cases unless the command line chooses seeds.
        """
        for seed in self.chosen or range(ordinary):
            # If a case hangs, this is the last line that pytest shows.
            sys.stdout.write(f"seed {seed}\n")
            self._run_one(case, seed)
            if len(self.failures) >= _MOST_FAILURES:
                break
        sys.stdout.write(f"{dict(self.outcomes)}\n")
        if self.failures:
            pytest.fail("\n\n".join(self.failures), pytrace=False)

    def _run_one(self, case: Callable[[int], str], seed: int) -> None:
        started = time.monotonic()
        try:
            self.outcomes[case(seed)] += 1
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # continue with other seeds
            self.failures.append(f"--fuzz-seed {seed}\n{traceback.format_exc(limit=-6)}")
            return
        took = time.monotonic() - started
        if took > _LONGEST:
            self.failures.append(f"--fuzz-seed {seed}\ntook {took:.0f} s")
