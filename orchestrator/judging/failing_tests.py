"""Find out which tests a check reports as failed, in its JUnit file and in its output.

The check executes a candidate's code, so both may contain anything. The JUnit file is read with
limits, and without XML entities. It can only make a result worse, because the exit code of the
check decides whether the check passes.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from xml.parsers import expat

from orchestrator.judging.check_run import Outcome, Watched
from orchestrator.text.sanitize import one_line

MOST_BYTES = 8 * 1024**2
"""Maximum size in bytes of a JUnit file that is read."""
MOST_CASES = 10_000
"""Maximum number of tests in one JUnit file."""
_DEEPEST = 50
_MOST_FAILURES = 50
_MOST_OF_FAILURE = 2000
"""Maximum number of characters of a failed test's text."""
_BAD = frozenset({"failure", "error"})


class _Cases:
    def __init__(self) -> None:
        self.found: dict[str, Outcome] = {}
        self._case: str | None = None
        self._depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("the JUnit file is nested too deeply")
        if name == "testcase":
            words = (attributes.get("classname", ""), attributes.get("name", ""))
            self._case = one_line("::".join(word for word in words if word), limit=300)
            self.found.setdefault(self._case, "passed")
            # protection: junit-file-has-limited-number-of-tests
            if len(self.found) > MOST_CASES:
                raise ValueError("the JUnit file has too many tests")
        elif self._case is not None and name in _BAD:
            self.found[self._case] = "failed"
        elif self._case is not None and name == "skipped" and self.found[self._case] == "passed":
            self.found[self._case] = "skipped"

    def end(self, name: str) -> None:
        self._depth -= 1
        if name == "testcase":
            self._case = None

    def refuse(self, *_: object) -> None:
        raise ValueError("a JUnit file must not have a document type declaration")


def read_cases(data: bytes) -> dict[str, Outcome] | None:
    """Return the result of each test in a JUnit file; None if the file is not usable."""
    cases = _Cases()
    return cases.found if _parse(_parser(cases), data) else None


def _parser(cases: _Cases) -> expat.XMLParserType:
    parser = expat.ParserCreate()
    parser.StartElementHandler = cases.start
    parser.EndElementHandler = cases.end
    # protection: junit-file-declares-no-document-type
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = cases.refuse
    return parser


def _parse(parser: expat.XMLParserType, data: bytes) -> bool:
    try:
        parser.Parse(data[:MOST_BYTES], True)
    except (expat.ExpatError, ValueError, LookupError):
        return False
    return True


class _Failures(_Cases):
    """The texts of the failed tests."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self._reads: str | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self._case is not None and name in _BAD and len(self.texts) < _MOST_FAILURES:
            self._reads = self._case
            self.texts.setdefault(self._case, attributes.get("message", "")[:_MOST_OF_FAILURE])

    def text(self, data: str) -> None:
        if self._reads is not None:
            known = self.texts[self._reads]
            self.texts[self._reads] = f"{known}{data}"[:_MOST_OF_FAILURE]

    def end(self, name: str) -> None:
        super().end(name)
        if name in _BAD:
            self._reads = None


def read_failures(data: bytes) -> dict[str, str] | None:
    """Return the names and texts of the first failed tests in a JUnit file; None if unusable."""
    failures = _Failures()
    parser = _parser(failures)
    parser.CharacterDataHandler = failures.text
    return failures.texts if _parse(parser, data) else None


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


def find_failed_tests(
    output: str, cases: Mapping[str, Outcome] | None, watched: Sequence[Watched]
) -> tuple[int, ...]:
    """Return the indexes of the watched tests that are reported as failed.

    Args:
        output: What the check printed. Code under test may have written anything into it.
        cases: Results of the check's JUnit file, if there is one.
        watched: The tests.
    """
    printed = (line for line in _COLOURS.sub("", output).split("\n") if _FAILS.search(line))
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
