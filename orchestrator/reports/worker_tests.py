"""Read the JUnit files that workers left as artifacts: bounded, and without XML entities."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from xml.parsers import expat

from orchestrator.judging.check_run import Outcome
from orchestrator.text.sanitize import one_line
from orchestrator.workspace.artifacts import collected

_MOST_BYTES = 8 * 1024**2
"""Maximum size in bytes of a JUnit file."""
_MOST_FILES = 100
_MOST_CASES = 20_000
"""Maximum number of tests of one worker."""
_DEEPEST = 50
_LONGEST_NAME = 300
_LONGEST_TEXT = 4000
_OUTCOMES: dict[str, Outcome] = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(kw_only=True)
class WorkerTest:
    """A test in a JUnit file of a worker. All texts are untrusted."""

    suite: str
    name: str
    seconds: float
    outcome: Outcome = "passed"
    message: str = ""
    text: str = ""


class UnusableError(ValueError):
    """A file is not a JUnit file, or exceeds a limit."""


def read_tests(root: Path, globs: Iterable[str]) -> Iterator[list[WorkerTest] | str]:
    """Yield the tests of each JUnit file of a worker, or why a file cannot be used.

    Args:
        root: The worker's state directory.
        globs: Patterns of the paths of the files among the artifacts; `*` also matches `/`.
    """
    patterns, files, cases = tuple(globs), 0, 0
    for path, file in collected(root):
        if not any(fnmatchcase(path, pattern) for pattern in patterns):
            continue
        files += 1
        if files > _MOST_FILES:
            yield f"there are more than {_MOST_FILES} JUnit files: the others were left out"
            return
        try:
            found = _parsed(file.read(_MOST_BYTES + 1), most=_MOST_CASES - cases)
        except (OSError, UnusableError) as error:
            yield f"{one_line(path)}: {error}"
        else:
            cases += len(found)
            yield found


def _parsed(data: bytes, *, most: int) -> list[WorkerTest]:
    if len(data) > _MOST_BYTES:
        raise UnusableError(f"the file is larger than {_MOST_BYTES // 1024**2} MiB")
    reader = _Reader(most)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:
        raise UnusableError(f"the file is not XML ({one_line(str(error))})") from error
    if not reader.is_junit:
        raise UnusableError("the file is not a JUnit file")
    return reader.found


@dataclass
class _Reader:
    """Collects the tests of a file from the events of an XML parser."""

    most: int
    found: list[WorkerTest] = field(default_factory=list)
    is_junit: bool = False
    _open: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open:
            self.is_junit = name in ("testsuites", "testsuite")
        self._open.append(name)
        if len(self._open) > _DEEPEST:
            raise UnusableError("the elements are nested too deeply")
        if name == "testcase":
            if len(self.found) >= self.most:
                raise UnusableError(f"the worker has more than {_MOST_CASES} tests")
            self.found.append(
                WorkerTest(
                    suite=one_line(attributes.get("classname", ""), limit=_LONGEST_NAME),
                    name=one_line(attributes.get("name", "") or "unnamed", limit=_LONGEST_NAME),
                    seconds=_seconds(attributes.get("time", "")),
                )
            )
        elif name in _OUTCOMES and "testcase" in self._open[-2:-1]:
            case = self.found[-1]
            if case.outcome != "failed":
                case.outcome = _OUTCOMES[name]
                case.message = attributes.get("message", "")[:_LONGEST_TEXT]

    def text(self, text: str) -> None:
        if self._open[-1] in _OUTCOMES and self.found:
            case = self.found[-1]
            case.text = (case.text + text)[:_LONGEST_TEXT]

    def end(self, _: str) -> None:
        self._open.pop()

    def refuse(self, *_: object) -> None:
        raise UnusableError("the file has a document type declaration")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and 0 <= seconds < 1e9 else 0.0
