"""Read an untrusted JUnit file, whichever program wrote it: bounded, and without XML entities.

No schema is official. A test that did not run, and an error of a whole suite, are written in
different ways; none of them is a test that passed.
"""

import math
import re
from dataclasses import dataclass, field
from xml.parsers import expat

from orchestrator.base.text.decode import decode
from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.check_run import Outcome

_DEEPEST = 50
_LONGEST_NAME = 300
_LONGEST_TEXT = 4000
_SUITES = frozenset({"testsuites", "testsuite"})
_ELEMENTS: dict[str, Outcome] = {
    "failure": "failed",
    "error": "failed",
    "skipped": "skipped",
    "disabled": "skipped",
    "ignored": "skipped",
}
_WORDS: dict[str, Outcome] = {
    **dict.fromkeys(("fail", "failed", "failure", "error", "errored", "timeout"), "failed"),
    **dict.fromkeys(("notrun", "not run", "not_run", "suppressed", "disabled"), "skipped"),
    **dict.fromkeys(("skip", "skipped", "ignored", "pending", "todo"), "skipped"),
}
"""Values of the attributes `status` and `result` of tests that did not pass. GoogleTest and CTest
write nothing else about disabled tests.
"""
_NOT_FOUND = frozenset({"Unable to find executable", "Required Files Missing"})
"""What CTest says of tests that it reports as skipped, and counts as failed."""
_SEVERITY: dict[Outcome, int] = {"passed": 0, "skipped": 1, "failed": 2}
_NO_XML = re.compile(
    r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    r"|&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|[xX]0*(?:[0-8bcefBCEF]|1[0-9a-fA-F]));"
)
"""Characters that an XML file must not contain, which programs copy from the output of tests."""
_REFERENCE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});)")
"""An ampersand that begins no reference of XML."""
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")


@dataclass(kw_only=True, slots=True)
class WorkerTest:
    """A test in a JUnit file. All texts are untrusted."""

    suite: str
    name: str
    seconds: float
    outcome: Outcome = "passed"
    message: str = ""
    text: str = ""


@dataclass
class Room:
    """How many tests and characters of their texts may still be read."""

    cases: int
    text: int

    def kept(self, text: str, *, most: int) -> str:
        """Return the part of a text for which there is room."""
        # protection: size-of-tests-texts-limited
        part = text[: min(most, self.text)]
        self.text -= len(part)
        return part


class _LimitError(ValueError):
    """The file exceeds a limit."""


def read_junit(data: bytes, room: Room) -> tuple[list[WorkerTest], str]:
    """Return the tests of a JUnit file, and what is wrong with the file; empty if nothing is.

    Of a file that is broken at one place, the tests before this place are returned; of a file that
    exceeds a limit, none.
    """
    cases, text = room.cases, room.text
    reader = _Reader(room)
    problem = _parse(reader, data, None)
    if reader.is_broken:
        # Programs copy what tests print, and their names, as they are.
        repaired = _REFERENCE.sub("&amp;", _NO_XML.sub("\ufffd", decode(data)))
        room.cases, room.text, reader = cases, text, _Reader(room)
        problem = _parse(
            reader, repaired.strip("\ufffd \t\r\n").encode("utf-8", "replace"), "utf-8"
        )
    if not problem and not reader.is_junit:
        problem = "the file is not a JUnit file"
    return reader.found, problem


def _parse(reader: "_Reader", data: bytes, encoding: str | None) -> str:
    parser = expat.ParserCreate(encoding)
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    # protection: junit-file-declares-no-document-type
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except _LimitError as error:
        reader.found.clear()
        return str(error)
    # protection: odd-encodings-are-named
    except (expat.ExpatError, LookupError, ValueError) as error:
        # Not all encodings that Python knows can be used in XML.
        parser.buffer_text = False
        reader.cut()
        reader.is_broken = isinstance(error, expat.ExpatError)
        return f"the file is not XML ({one_line(str(error))})"
    return ""


@dataclass
class _Part:
    """An open suite or test."""

    name: str
    test: WorkerTest | None = None
    declared: int = 0
    """Number of failures and errors that a suite declares."""
    has_failed: bool = False
    said: str = ""
    """The end of what the program printed."""


@dataclass
class _Reader:
    """Collects the tests of a file from the events of an XML parser."""

    room: Room
    found: list[WorkerTest] = field(default_factory=list)
    is_junit: bool = False
    is_broken: bool = False
    _open: list[str] = field(default_factory=list)
    _parts: list[_Part] = field(default_factory=list)
    _read: WorkerTest | None = None
    """The test whose failure is being read."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        self._open.append(name)
        # protection: depth-of-junit-file-limited
        if len(self._open) > _DEEPEST:
            raise _LimitError("the elements are nested too deeply")
        if name in _SUITES:
            self.is_junit = True
            numbers = (attributes.get(key, "").strip() for key in ("failures", "errors"))
            declared = sum(int(number[:9]) for number in numbers if number.isdecimal())
            self._parts.append(_Part(attributes.get("name", ""), declared=declared))
        elif name == "testcase":
            self.is_junit = True
            case = self._add(attributes.get("classname", ""), attributes.get("name", ""))
            case.seconds = _seconds(attributes.get("time", ""))
            self._parts.append(_Part("", case))
            for key in ("status", "result"):
                self._end(case, _WORDS.get(attributes.get(key, "").strip().lower(), "passed"))
        elif (outcome := _ELEMENTS.get(name)) and self._parts:
            message, test = attributes.get("message", ""), self._parts[-1].test
            if message in _NOT_FOUND:
                outcome = "failed"
            if test is None and outcome == "failed":
                # An error of a whole suite, such as a file that cannot be loaded.
                test = self._add("", self._parts[-1].name)
            if test is not None:
                self._end(test, outcome, message)
                self._read = test

    def text(self, text: str) -> None:
        if self._read is not None:
            most = _LONGEST_TEXT - len(self._read.text)
            self._read.text += self.room.kept(text, most=most)
        elif self._parts and self._open[-1] in ("system-out", "system-err"):
            part = self._parts[-1]
            part.said = (part.said + text)[-_LONGEST_TEXT:]

    def end(self, name: str) -> None:
        self._open.pop()
        name = name.rpartition(":")[2]
        if name in _ELEMENTS:
            self._read = None
        elif name in _SUITES or name == "testcase":
            part = self._parts.pop()
            test = part.test
            if test is None and part.declared and not part.has_failed:
                test = self._add("", part.name)
                self._end(test, "failed", f"{part.declared} failed, which the file does not name")
            if test is not None and test.outcome == "failed":
                part.has_failed = True
                if not test.text:
                    # CTest writes the reason only there.
                    test.text = self.room.kept(part.said.strip(), most=_LONGEST_TEXT)
            if self._parts:
                self._parts[-1].has_failed |= part.has_failed

    def _add(self, suite: str, name: str) -> WorkerTest:
        # protection: number-of-tests-limited
        if self.room.cases <= 0:
            raise _LimitError("there are more tests than there is room for")
        self.room.cases -= 1
        names = (one_line(text, limit=_LONGEST_NAME) for text in (suite, name or "unnamed"))
        test = WorkerTest(suite=next(names), name=next(names), seconds=0.0)
        self.found.append(test)
        return test

    def _end(self, test: WorkerTest, outcome: Outcome, message: str = "") -> None:
        if _SEVERITY[outcome] > _SEVERITY[test.outcome]:
            test.outcome, test.message = outcome, ""
        if outcome == test.outcome and not test.message:
            test.message = self.room.kept(message, most=_LONGEST_TEXT)
        if outcome == "failed" and self._parts:
            self._parts[-1].has_failed = True

    def cut(self) -> None:
        """Remove the test that was open where the file breaks off: its result is not known."""
        test = self._parts[-1].test if self._parts else None
        if test is not None and test.outcome == "passed":
            self.found.remove(test)

    def refuse(self, *_: object) -> None:
        raise _LimitError("the file has a document type declaration")


def _seconds(text: str) -> float:
    """Return a duration, also one that was written with separators, such as `1,234.56` or `0,5`."""
    text = "".join(text.split()).replace("'", "")
    if text.rfind(",") > text.rfind(".") and not _GROUPED.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    try:
        seconds = float(text.replace(",", ""))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and 0 <= seconds < 1e9 else 0.0
