"""Find out from the output of a check which tests it reports as failed."""

import re
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.judging.check_run import Outcome, Watched

_MOST_LINES = 100_000
_FAILS = re.compile(
    r"(?<![\w-])(?:FAIL|FAILED|ERROR)(?!\w)|^_{3,} |^not ok |"
    r"[\u2715\u2716\u00d7\u2717\u25cf]|^\s*\d+\) |\[build failed\]"
)
"""Marks of a failed test in the lines of pytest, unittest, jest, vitest, mocha, node and go."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r"\w+")
_LAST = re.compile(r"\w+(?!\w|\.|::)")
"""Words that are not followed by the name of a part, as a module or a class is."""


def failed_tests(
    output: str, cases: Mapping[str, Outcome] | None, watched: Sequence[Watched]
) -> tuple[int, ...]:
    """Return the indexes of the watched tests that are reported as failed.

    Args:
        output: What the check printed. Code under test may have written anything into it.
        cases: Results of the check's JUnit file, if there is one.
        watched: The tests.
    """
    lines = [*_failing_lines(output)]
    lines += [name for name, outcome in (cases or {}).items() if outcome == "failed"]
    rows = [
        (line, frozenset(_WORD.findall(line)), frozenset(_LAST.findall(line)))
        for line in dict.fromkeys(lines)
    ]
    places: dict[str, list[int]] = {}
    for number, (_, words, _) in enumerate(rows):
        for word in words:
            places.setdefault(word, []).append(number)

    def is_reported(one: Watched) -> bool:
        known = [places.get(word, []) for word in one.words if word.isidentifier()]
        numbers = min(known, key=len) if known else range(len(rows))
        return any(_names(one.words, *rows[number]) for number in numbers)

    return tuple(place for place, one in enumerate(watched) if is_reported(one))


def _names(wanted: Sequence[str], line: str, words: frozenset[str], last: frozenset[str]) -> bool:
    *above, name = wanted
    if not all(one in words if one.isidentifier() else one in line for one in above):
        return False
    if not name.isidentifier():
        return name in line
    # A name alone is that of a file that could not be loaded, or of a test.
    return name in last


def _failing_lines(output: str) -> Iterator[str]:
    found = 0
    for line in _COLOURS.sub("", output).split("\n"):
        if _FAILS.search(line):
            found += 1
            yield line[:1000]
        if found >= _MOST_LINES:
            return
