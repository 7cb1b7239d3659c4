"""Find out which tests a check reports as failed, in its JUnit file and in its output.

The check executes a candidate's code, so both may contain anything. The JUnit file is read with
limits, and without XML entities. It can only make a result worse, because the exit code of the
check decides whether the check passes.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.check_run import Outcome, Watched
from orchestrator.review.judging.junit_file import Room, read_junit

MOST_BYTES = 8 * 1024**2
"""Maximum size in bytes of a JUnit file that is read."""
MOST_CASES = 10_000
"""Maximum number of tests in one JUnit file."""
_MOST_ENTRIES = 5 * MOST_CASES
_SEVERITY: tuple[Outcome, ...] = ("passed", "skipped", "failed")


def read_cases(data: bytes) -> dict[str, Outcome] | None:
    """Return the result of each test in a JUnit file; None if the file is not usable.

    Of several tests of the same name, the worst result counts.
    """
    tests, problem = read_junit(data[:MOST_BYTES], Room(cases=_MOST_ENTRIES, text=0))
    cases: dict[str, Outcome] = {}
    for test in tests:
        name = one_line("::".join(filter(None, (test.suite, test.name))), limit=300)
        cases[name] = max(test.outcome, cases.get(name, "passed"), key=_SEVERITY.index)
    # protection: junit-file-has-limited-number-of-tests
    return None if problem or len(cases) > MOST_CASES else cases


_MOST_LINES = 100_000
_FAILS = re.compile(
    r"(?<![\w-])(?:FAIL|FAILED|ERROR)(?!\w)|^_{3,} |^not ok |"
    r"[\u2715\u2716\u00d7\u2717\u25cf]|^\s*\d+\) |\[build failed\]|could not compile"
)
"""Marks of a failed test in the lines of pytest, unittest, jest, vitest, mocha, node, go, cargo."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CASE = re.compile(r"::case_\d+\w*")
"""The number of a row of a table of `rstest`, after the test's name."""
_WORD = re.compile(r"\w+")
_LAST = re.compile(r"\w+(?!\w|\.|::)")
"""Words that are not followed by the name of a part, as a module or a class is."""


def find_failed_tests(
    output: str, cases: Mapping[str, Outcome] | None, watched: Sequence[Watched]
) -> tuple[int, ...]:
    """Return the indexes of the watched tests that are reported as failed.

    Args:
        output: What the check printed. Code under test may have written anything into it.
        cases: Results of the check's JUnit file, if there is one.
        watched: The tests.
    """
    printed = (
        line for line in _CASE.sub("", _COLOURS.sub("", output)).split("\n") if _FAILS.search(line)
    )
    lines = [line[:1000] for line in islice(printed, _MOST_LINES)]
    lines += [name for name, outcome in (cases or {}).items() if outcome == "failed"]
    rows = [
        (line, frozenset(_WORD.findall(line)), frozenset(_LAST.findall(line)))
        for line in dict.fromkeys(lines)
    ]
    places: dict[str, list[int]] = {}
    for number, (_, words, _) in enumerate(rows):
        for word in words:
            places.setdefault(word, []).append(number)

    def is_reported(test: Watched) -> bool:
        known = [places.get(word, []) for word in test.words if word.isidentifier()]
        numbers = min(known, key=len) if known else range(len(rows))
        *above, name = test.words
        for line, words, last in (rows[number] for number in numbers):
            # A name alone is that of a file that could not be loaded, or of a test.
            # protection: name-in-report-of-another-test-is-no-failure
            if (name in last if name.isidentifier() else name in line) and all(
                part in words if part.isidentifier() else part in line for part in above
            ):
                return True
        return False

    return tuple(place for place, test in enumerate(watched) if is_reported(test))
