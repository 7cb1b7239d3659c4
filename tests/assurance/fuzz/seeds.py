"""Goes through seeds, one case each, and tells how a failing one is run again."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

_LONGEST = 60.0
"""Seconds for one case; most take a tenth of one."""
_MOST_FAILURES = 5


@dataclass
class Seeds:
    """Which seeds to try, and what came of them."""

    cases: int | None = None
    only: int | None = None
    failures: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, case: Callable[[int], str], *, ordinary: int) -> None:
        """Run a case per seed; its answer is counted.

        Args:
            case: Takes a seed, gives a word for what became of it, fails by AssertionError.
            ordinary: How many, unless the command line says otherwise.
        """
        chosen = range(self.cases or ordinary) if self.only is None else [self.only]
        for seed in chosen:
            # Should a case hang, this is the last line that pytest shows.
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
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  # the other seeds are tried
            self.failures.append(f"--fuzz-seed {seed}\n{traceback.format_exc(limit=-6)}")
            return
        took = time.monotonic() - started
        if took > _LONGEST:
            self.failures.append(f"--fuzz-seed {seed}\ntook {took:.0f} s")
