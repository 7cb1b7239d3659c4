"""Change expectations of JavaScript, Go and Rust tests in their text, one literal of one test each.

A test that uses a constant, such as a table, gets a copy in its place: a change concerns one test.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from orchestrator.review.judging.case_source import CaseName, CaseSource, ChanceOf, Strength
from orchestrator.review.judging.python_mutants import change_text
from orchestrator.review.judging.text_tests import TextTest, find_tests
from orchestrator.review.judging.tokens import Language, Source, read_source

_LARGEST = 20_000
"""Maximum number of characters of a constant that is copied."""
_WANTED = re.compile(
    r"(?:want|wanted|expect|expected|exp|result|output|out|answer|returns|should)(?:_?\w+)?",
    re.IGNORECASE,
)
_ASSERTION = re.compile(
    r"(?:assert|expect|require|ensure|check|verify|to(?:Be|Equal|Strict|Match|Contain|Have|Throw)|"
    r"is$|equal|strictEqual|deepEqual|deepStrictEqual|notEqual|Equal|same)\w*"
)
_SURE_JS = frozenset({"toBe", "toEqual", "toStrictEqual"})
_SURE_ASSERT = frozenset({"equal", "strictEqual", "deepEqual", "deepStrictEqual"})
_FAILS_GO = frozenset({"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"})
_LEAVES = frozenset({"return", "skip", "Skip", "SkipNow", "Skipf", "throw"})
_NUMBER = re.compile(r"(\d+)(\.\d+)?((?:[iu](?:8|16|32|64|128|size)|f32|f64|n)?)")
_PLAIN_TEXT = re.compile(r"""b?(["'`])((?:(?!\1)[^\\\n$])*)\1""")
_CHANGES = frozenset({"push", "pop", "shift", "unshift", "splice", "sort", "reverse", "append"})
_NO_COPY = frozenset({"function", "func", "fn", "await", "async", "class", "yield"})
_ENDS = {"js": ";", "rust": ";", "go": ""}


class TextSource(CaseSource):
    """A file with tests in one of these languages."""

    def __init__(self, content: bytes, language: Language) -> None:
        """Find the tests.

        Raises:
            ValueError: The file is not valid UTF-8, or its brackets do not match.
        """
        self._language = language
        source = read_source(content.decode("utf-8"), language)
        self._source = read_source(_with_constants(source, language), language)
        self._tests = [*find_tests(self._source, language)]
        self.names = tuple(CaseName(test.name) for test in self._tests)

    def strengths(self) -> tuple[Strength, ...]:
        """Return, for each test, what its mutant proves."""
        names = [test.name for test in self._tests]
        found = []
        for test in self._tests:
            # The report of a test must not contain the name of another one.
            is_clear = sum(test.name in other for other in names) == 1
            own, strength = self._literals(test)
            if not own:
                strength = Strength.NONE if test.body is None else Strength.ADDED
            found.append(strength if is_clear else Strength.NONE)
        return tuple(found)

    def with_mutants(
        self, chosen: Mapping[int, Strength], added: frozenset[int], chance_of: ChanceOf
    ) -> bytes:
        """Return the file, in which the chosen tests have a changed literal."""
        edits = list[tuple[int, int, str]]()
        for place in {*chosen, *added}:
            test, chance = self._tests[place], chance_of(place)
            strength = chosen.get(place, Strength.ADDED)
            if strength is Strength.ADDED and test.body is not None:
                value = chance.randrange(100)
                other = value if place not in chosen else value + chance.choice((-1, 1))
                if self._language == "js":
                    said = f" if ({value} !== {other}) throw new Error('{value}');"
                elif self._language == "rust":
                    said = f" assert_eq!({value}, {other});"
                else:
                    parameter = self._source.said(test.start + 3)
                    said = f" if {value} != {other} {{ {parameter}.Fatal({value}) }};"
                end = self._source.tokens[test.body].end
                edits.append((end, end, said))
            elif strength > Strength.ADDED:
                literals, _ = self._literals(test)
                token = self._source.tokens[chance.choice(literals)]
                edits.append((token.start, token.end, _change(token.text, chance)))
        text = self._source.text
        for start, end, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[end:]
        return f"{text.rstrip()}\n// {chance_of(-1).getrandbits(64)}\n".encode()

    def _literals(self, test: TextTest) -> tuple[list[int], Strength]:
        """Return the literals of the best group in a test, and what their change proves."""
        source = self._source
        if sure := [*_sure(source, test, self._language)]:
            return sure, Strength.SURE
        groups = (_named, _cells, _pairs, _of_assertions, _compared, _arguments)
        inner = test.start if test.body is None else test.body
        found = (
            [*group(source, inner if group is _arguments else test.start, test.end)]
            for group in groups
        )
        return next((group for group in found if group), []), Strength.OWN


def _is_literal(source: Source, place: int) -> bool:
    token = source.tokens[place]
    if token.kind == "name":
        return token.text in ("true", "false")
    if token.kind == "number":
        return _NUMBER.fullmatch(token.text) is not None
    return token.kind in ("text", "raw", "template") and bool(_PLAIN_TEXT.fullmatch(token.text))


def _only_literal(source: Source, part: range) -> int | None:
    """Return the literal that is a whole element; None if the element is something else."""
    places = [place for place in part if source.said(place) not in ("-", "&")]
    is_whole = len(places) == 1 and _is_literal(source, places[0])
    return places[0] if is_whole else None


def _sure(source: Source, test: TextTest, language: Language) -> Iterator[int]:
    """Yield literals that are always compared if the test runs to its end."""
    body = test.body
    if body is None or any(
        # A table around the test, or its arguments: each row is another test.
        source.said(place) in ("each", "for", "forEach", "case", "rstest")
        for place in range(test.start, body)
    ):
        return
    for place in range(body + 1, source.ends[body]):
        said = source.said(place)
        if said in _LEAVES and source.is_name(place):
            return
        if source.parents[place] == body and source.is_name(place):
            yield from _SURE[language](source, place)


def _sure_in_js(source: Source, place: int) -> Iterator[int]:
    """Yield the expected literal of `expect(...).toBe(12)` or `assert.equal(..., 12)`."""
    said, before = source.said(place), [source.said(place - 2), source.said(place - 1)]
    if place + 1 not in source.ends:
        return
    parts = source.parts(place + 1)
    wanted = list[range]()
    if said in _SURE_JS and before == [")", "."]:
        wanted = parts[:1]
    elif (said in _SURE_ASSERT and before == ["assert", "."]) or said == "assertEquals":
        wanted = parts[1:2]
    yield from (item for part in wanted if (item := _only_literal(source, part)) is not None)


def _sure_in_rust(source: Source, place: int) -> Iterator[int]:
    """Yield the literal of `assert_eq!(..., 12)`, if the other side is computed."""
    if source.said(place) == "assert_eq" and place + 2 in source.ends:
        found = [_only_literal(source, part) for part in source.parts(place + 2)[:2]]
        if found.count(None) == 1:
            yield from (item for item in found if item is not None)


def _sure_in_go(source: Source, place: int) -> Iterator[int]:
    """Yield the literal of `if got != 12 {` that fails the test, or of `assert.Equal`."""
    if source.said(place) in ("assert", "require") and source.said(place + 2) == "Equal":
        parts = source.parts(place + 3) if place + 3 in source.ends else []
        found = [_only_literal(source, part) for part in parts[1:3]]
        if found.count(None) == 1:
            yield from (item for item in found if item is not None)
    if source.said(place) != "if":
        return
    opening = next(
        (item for item in range(place, len(source.tokens)) if source.said(item) == "{"), place
    )
    end = [source.said(item) for item in range(opening - 3, opening)]
    fails = source.said(opening + 2) == "." and source.said(opening + 3) in _FAILS_GO
    joined = any(source.said(item) in ("&", "|") for item in range(place, opening))
    if end[:2] == ["!", "="] and fails and not joined and _is_literal(source, opening - 1):
        yield opening - 1


_SURE = {"js": _sure_in_js, "go": _sure_in_go, "rust": _sure_in_rust}


def _named(source: Source, start: int, end: int) -> Iterator[int]:
    """Yield literals with the name of an expected value, as in `want: 12`."""
    for place in range(start, end - 1):
        if source.said(place + 1) == ":" and _WANTED.fullmatch(source.said(place).strip("'\"")):
            value = place + 3 if source.said(place + 2) == "-" else place + 2
            if value < end and _is_literal(source, value):
                yield value


def _cells(source: Source, start: int, end: int) -> Iterator[int]:
    """Yield the last literals of the rows of tables."""
    for place in range(start, end):
        if place not in source.ends or source.said(place) not in "[{(":
            continue
        outer = source.parents[place]
        before = source.said(place - 1)
        is_row = before in ("[", ",", "{", "&", ":", "}", "(") and outer >= start
        is_case = before == "case" and source.said(place - 2) == "["
        if not ((is_row and source.said(outer) in "[{") or is_case):
            continue
        parts = source.parts(place)
        if len(parts) < 2:
            continue
        last = parts[-1]
        named = next((item for item in last if source.said(item) == ":"), None)
        value = _only_literal(source, range(named + 1, last.stop) if named else last)
        if value is not None:
            yield value


def _pairs(source: Source, start: int, end: int) -> Iterator[int]:
    """Yield the literal values of mappings."""
    for place in range(start, end):
        if source.said(place) == "{" and place in source.ends:
            parts = source.parts(place)
            pairs = [part for part in parts if len(part) > 2 and source.said(part[1]) == ":"]
            values = [_only_literal(source, part[2:]) for part in pairs]
            if len(pairs) == len(parts):
                yield from (item for item in values if item is not None)


def _calls(source: Source, start: int, end: int) -> Iterator[tuple[str, int]]:
    for place in range(start, end):
        opening = place + 2 if source.said(place + 1) == "!" else place + 1
        if source.is_name(place) and source.said(opening) == "(" and opening in source.ends:
            yield source.said(place), opening


def _of_assertions(source: Source, start: int, end: int) -> Iterator[int]:
    for name, opening in _calls(source, start, end):
        if _ASSERTION.fullmatch(name):
            values = (_only_literal(source, part) for part in source.parts(opening))
            yield from [item for item in values if item is not None][-1:]


def _compared(source: Source, start: int, end: int) -> Iterator[int]:
    for place in range(start + 1, end - 1):
        if source.said(place) == "=" and source.said(place - 1) in ("=", "!"):
            after = place + 2 if source.said(place + 1) == "=" else place + 1
            if after < end and _is_literal(source, after):
                yield after


def _arguments(source: Source, start: int, end: int) -> Iterator[int]:
    """Yield the last literal argument of calls whose result is not used."""
    for name, opening in _calls(source, start, end):
        before = source.said(opening - 2)
        if before in ("{", ";", "}", ")", "await") and name not in ("if", "for", "while", "switch"):
            values = (_only_literal(source, part) for part in source.parts(opening))
            yield from [item for item in values if item is not None][-1:]


def _change(literal: str, chance: Random) -> str:
    """Return another literal of the same kind, which fits into every type that the first fits."""
    if literal in ("true", "false"):
        return "false" if literal == "true" else "true"
    if (number := _NUMBER.fullmatch(literal)) is None:
        found = _PLAIN_TEXT.fullmatch(literal)
        assert found is not None  # noqa: S101
        before, new = found[2], found[2]
        while new == before:
            new = change_text(before, chance)
        place = literal.index(found[1]) + 1
        is_letter = found[1] == "'" and len(before) == 1 and len(new) > 1
        return literal[:place] + ("z" if is_letter else new) + found[1]
    digits = number[1]
    if set(digits) == {"0"}:
        return digits[:-1] + "1" + (number[2] or "") + number[3]
    places = [
        place
        for place, digit in enumerate(digits)
        if digit > "0" and (place or len(digits) == 1 or digit > "1")
    ]
    if not places:
        return str(int(digits) - 1) + (number[2] or "") + number[3]
    place = chance.choice(places)
    least = 1 if place == 0 and len(digits) > 1 else 0
    digit = chance.randrange(least, int(digits[place]))
    return f"{digits[:place]}{digit}{digits[place + 1 :]}{number[2] or ''}{number[3]}"


def _with_constants(source: Source, language: Language) -> str:
    """Return the text, in which tests have copies of the constants that they use."""
    tests = [*find_tests(source, language)]
    constants = dict(_constants(source, language, tests))
    edits = list[tuple[int, int, str]]()
    for test in tests:
        for place in range(test.start, test.end):
            token = source.tokens[place]
            if token.kind != "name" or token.text not in constants:
                continue
            before, after = source.said(place - 1), source.said(place + 1)
            is_key = after == ":" or before == "." or (before in "{," and after in ",}")
            if not is_key and not (after == "." and source.said(place + 2) in _CHANGES):
                edits.append((token.start, token.end, constants[token.text]))
    text = source.text
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _constants(
    source: Source, language: Language, tests: Sequence[TextTest]
) -> Iterator[tuple[str, str]]:
    """Yield names and values of constants outside of tests; each name must be declared once."""
    words = {"js": ("const",), "go": ("var", "const"), "rust": ("const", "static")}[language]
    declared = [
        source.said(place + 1)
        for place in range(len(source.tokens))
        if source.said(place) in (*words, "let", "var") or source.said(place + 2) == ":="
    ]
    inside = {place for test in tests for place in range(test.start, test.end)}
    for place in range(len(source.tokens) - 3):
        name = source.said(place + 1)
        is_new = source.said(place) in words and source.is_name(place + 1)
        if not is_new or declared.count(name) > 1 or place in inside:
            continue
        equals = place + 2
        while equals < len(source.tokens) and source.said(equals) not in ("=", ";", "{"):
            equals = source.ends.get(equals, equals) + 1
        if source.said(equals) != "=" or source.said(equals + 1) in ("", "="):
            continue
        end = _end_of_value(source, equals + 1, _ENDS[language])
        value = source.text[source.tokens[equals + 1].start : source.tokens[end].end]
        inner = {source.said(item) for item in range(equals + 1, end + 1)}
        is_arrow = "=>" in value and language == "js"
        if len(value) <= _LARGEST and not inner & _NO_COPY and not is_arrow:
            kind = source.text[source.tokens[place + 1].end : source.tokens[equals].start]
            kind = kind.strip().removeprefix(":").strip()
            copy = f"{{ const {name}: {kind} = {value}; {name} }}"
            yield name, copy if language == "rust" else f"({value})"


def _end_of_value(source: Source, start: int, mark: str) -> int:
    """Return the last token of a value: before a semicolon, or at the end of a line."""
    place = start
    while place + 1 < len(source.tokens):
        last = source.ends.get(place, place)
        following = last + 1
        if following >= len(source.tokens) or source.said(following) in (mark or ";", ")", "}"):
            return last
        between = source.text[source.tokens[last].end : source.tokens[following].start]
        if "\n" in between and mark != ";":
            return last
        if "\n" in between and source.said(last) in ("]", "}", ")") and source.is_name(following):
            return last
        place = following
    return place
