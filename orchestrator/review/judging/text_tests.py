"""Find the tests of a JavaScript, Go or Rust file in its text."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.review.judging.tokens import Language, Source

_HOLE = re.compile(r"\$\{[^}]*\}|%[a-zA-Z%#]|\$[\w.]+")


@dataclass(frozen=True)
class TextTest:
    """A test: its name, and its first and last token; for a table around it, those of the table."""

    name: str
    start: int
    end: int
    body: int | None
    """The opening bracket of the statements."""


def find_tests(source: Source, language: Language) -> Iterator[TextTest]:
    """Yield the tests of a file, in their order."""
    tests = [*{"js": _js_tests, "go": _go_tests, "rust": _rust_tests}[language](source)]
    for test in tests:
        yield _with_loop(source, test, tests) if language == "js" else test


def _js_tests(source: Source) -> Iterator[TextTest]:
    place = 0
    while place < len(source.tokens):
        start, place = place, place + 1
        if source.said(start) not in ("test", "it", "specify") or not source.is_name(start):
            continue
        if source.said(start - 1) in (".", "function", "const", "let", "{", ",") and not (
            source.said(start - 1) in ("{", ",") and source.said(start + 1) == "("
        ):
            continue
        opening = start + 1
        if source.said(opening) == "." and source.said(opening + 1) in ("each", "concurrent"):
            has_table = source.said(opening + 1) == "each"
            opening += 2
            if has_table and opening in source.ends:
                opening = source.ends[opening] + 1
            elif has_table:
                opening += 1
        if source.said(opening) != "(" or opening not in source.ends:
            continue
        end = source.ends[opening]
        if opening + 1 < end and source.tokens[opening + 1].kind in ("text", "template"):
            said = source.tokens[opening + 1].text[1:-1]
            is_plain = source.tokens[opening + 1].kind == "text" and start + 1 == opening
            chunks = [said] if is_plain else _HOLE.split(said)
            name = max(chunks, key=len).strip() if chunks else ""
            if len(name) >= 3 and "\\" not in name:
                yield TextTest(name, start, end + 1, _body_of(source, opening))
                place = end


def _body_of(source: Source, opening: int) -> int | None:
    for place in range(opening, source.ends[opening]):
        is_arrow = source.said(place - 2) == "=" and source.said(place - 1) == ">"
        is_function = source.said(place - 1) == ")"
        if source.said(place) == "{" and source.parents[place] == opening:
            return place if is_arrow or is_function else None
    return None


def _with_loop(source: Source, test: TextTest, tests: Sequence[TextTest]) -> TextTest:
    """Return a test with the loop around it, whose table then is its own, if it is alone there."""
    start, end = test.start, test.end
    place = source.parents[test.start]
    while place >= 0:
        others = [item for item in tests if place < item.start < source.ends[place]]
        if len(others) > 1:
            break
        head = place
        if source.said(place) == "{" and source.said(place - 1) == ")":
            opening = next(item for item, other in source.ends.items() if other == place - 1)
            head = opening - 1 if source.said(opening - 1) == "for" else place
            if head != place:
                start, end = head, source.ends[place] + 1
        elif source.said(place) == "(" and source.said(place - 1) in ("forEach", "map"):
            head = place - 3
            if source.said(head) in ("]", ")"):
                head = next(item for item, other in source.ends.items() if other == head)
            start, end = head, source.ends[place] + 1
        elif source.said(place) == "(" and source.said(place - 1) == ")":
            opening = next(item for item, other in source.ends.items() if other == place - 1)
            if source.said(opening - 1) == "each":
                start, end = opening, source.ends[place] + 1
        place = source.parents[place]
    return TextTest(test.name, start, end, test.body)


def _go_tests(source: Source) -> Iterator[TextTest]:
    for place in range(len(source.tokens) - 6):
        name = source.said(place + 1)
        if source.said(place) == "func" and re.fullmatch(r"Test\w*", name):
            opening = place + 2
            if source.said(opening) == "(" and source.said(source.ends[opening] + 1) == "{":
                body = source.ends[opening] + 1
                yield TextTest(name, place, source.ends[body] + 1, body)


def _rust_tests(source: Source) -> Iterator[TextTest]:
    place = 0
    while place < len(source.tokens):
        start = place
        is_test = False
        while source.said(place) == "#" and source.said(place + 1) == "[":
            said = [source.said(item) for item in range(place + 2, source.ends[place + 1])]
            is_test |= "test" in said[:4] and said[:1] != ["cfg"]
            is_test |= said[:1] in (["rstest"], ["test_case"])
            place = source.ends[place + 1] + 1
        if place == start:
            place += 1
            continue
        while source.said(place) in ("pub", "async", "const"):
            place += 1
        if is_test and source.said(place) == "fn":
            body = next(
                (item for item in range(place, len(source.tokens)) if source.said(item) == "{"),
                None,
            )
            if body is not None:
                yield TextTest(source.said(place + 1), start, source.ends[body] + 1, body)
                place = body
