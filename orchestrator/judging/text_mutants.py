"""Change expectations of JavaScript and Go tests in their text, one literal of one line each.

Only lines are changed that are executed whenever the test runs to its end: lines with the smallest
indentation in the test.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from orchestrator.judging.case_source import CaseName, CaseSource
from orchestrator.judging.python_mutants import change_text, change_value

_LITERAL = r"""(?:-?\d+(?:\.\d+)?|'[^'\\\n]*'|"[^"\\\n]*"|true|false)"""
_JS_TEST = re.compile(r"""^(?P<indent>[ \t]*)(?:test|it)\((['"`])(?P<name>[^'"`\\\n]{3,200})\2""")
_JS_EXPECTED = (
    re.compile(rf"\.(?:toBe|toEqual|toStrictEqual)\((?P<value>{_LITERAL})\)"),
    re.compile(
        r"\bassert\.(?:equal|strictEqual|deepEqual|deepStrictEqual)"
        rf"\(.+, (?P<value>{_LITERAL})\)"
    ),
)
_GO_TEST = re.compile(r"^(?P<indent>)func (?P<name>Test\w*)\(\w+ \*testing\.T\) \{")
_GO_EXPECTED = (
    re.compile(rf"^\tif .+ != (?P<value>{_LITERAL}) \{{$"),
    re.compile(rf"\b(?:assert|require)\.Equal\(\w+, (?P<value>{_LITERAL}), .+\)$"),
)
_GO_FAILS = re.compile(r"^\t\t\w+\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(")

_MAY_LEAVE = re.compile(r"\b(return|skip|Skip|SkipNow)\b")


@dataclass(frozen=True)
class _Language:
    test: "re.Pattern[str]"
    expected: Sequence["re.Pattern[str]"]


_LANGUAGES = {
    "js": _Language(_JS_TEST, _JS_EXPECTED),
    "go": _Language(_GO_TEST, _GO_EXPECTED),
}


@dataclass(frozen=True)
class _Place:
    """A literal in the text: line, and columns."""

    line: int
    start: int
    end: int


class TextSource(CaseSource):
    """A file with tests in a language that is changed by lines: `js` or `go`."""

    def __init__(self, content: bytes, language: str) -> None:
        """Find the tests.

        Raises:
            ValueError: The file is not valid UTF-8.
        """
        self._lines = content.decode("utf-8").split("\n")
        rules = _LANGUAGES[language]
        found = [*_tests(self._lines, rules)]
        places = [[*_places(self._lines, start, end, rules)] for _, start, end in found]
        all_names = [name for name, _, _ in found]
        # The report of a test must not contain the name of another one.
        clear = [
            sum(name in other for other in all_names) == 1 and bool(places[place])
            for place, name in enumerate(all_names)
        ]
        self._places = [
            literals for literals, is_clear in zip(places, clear, strict=True) if is_clear
        ]
        self.others = tuple(map(CaseName, all_names))
        self.names = tuple(
            CaseName(name) for name, is_clear in zip(all_names, clear, strict=True) if is_clear
        )

    def with_mutants(self, chosen: Sequence[int], chance: Random) -> bytes:
        """Return the file, in which the chosen tests have a changed literal."""
        lines = [*self._lines]
        for number in chosen:
            place = chance.choice(self._places[number])
            line = lines[place.line]
            new = literal = line[place.start : place.end]
            while new == literal:
                if literal in ("true", "false"):
                    new = "false" if literal == "true" else "true"
                elif literal[0] in "'\"":
                    new = literal[0] + change_text(literal[1:-1], chance) + literal[0]
                else:
                    value = float(literal) if "." in literal else int(literal)
                    new = str(change_value(value, chance))
            lines[place.line] = line[: place.start] + new + line[place.end :]
        return "\n".join([*lines, ""]).encode()


def _tests(lines: Sequence[str], rules: _Language) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each test, its first line and the line after its last one."""
    for start, line in enumerate(lines):
        if (found := rules.test.match(line)) is None:
            continue
        indent, end = found["indent"], start + 1
        if not re.search(r"\}\s*\)?;?\s*$", line):
            while end < len(lines) and (
                not lines[end].strip() or lines[end].startswith((indent + " ", indent + "\t"))
            ):
                end += 1
        yield found["name"], start, end


def _places(lines: Sequence[str], start: int, end: int, rules: _Language) -> Iterator[_Place]:
    body = [line for line in lines[start + 1 : end] if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in body), default=0)
    for number in range(start, end):
        line = lines[number]
        if _MAY_LEAVE.search(line):
            return
        is_own = number == start or len(line) - len(line.lstrip()) == indent
        if is_own and (place := _place(lines, number, rules)) is not None:
            yield place


def _place(lines: Sequence[str], number: int, rules: _Language) -> _Place | None:
    for pattern in rules.expected:
        found = pattern.search(lines[number])
        if found is None or ".not." in lines[number]:
            continue
        is_go = rules.test is _GO_TEST
        if is_go and pattern is _GO_EXPECTED[0] and not _GO_FAILS.match(lines[number + 1]):
            continue
        return _Place(number, *found.span("value"))
    return None
