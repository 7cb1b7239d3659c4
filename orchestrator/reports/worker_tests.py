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
_MOST_READ = 32 * 1024**2
"""Maximum size in bytes of all JUnit files of one worker."""
_MOST_CASES = 20_000
"""Maximum number of tests of one worker."""
_CASES = 200_000
"""Number of tests that the workers of a run share, if each of them has many."""
_TEXT = 20 * 1000**2
"""Number of characters of messages and texts that the workers of a run share."""
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


def read_tests(
    root: Path, globs: Iterable[str], *, workers: int = 1
) -> Iterator[list[WorkerTest] | str]:
    """Yield the tests of each JUnit file of a worker, or why a file cannot be used.

    Messages and texts of tests are empty after the worker's share of them is used.

    Args:
        root: The worker's state directory.
        globs: Patterns of the paths of the files among the artifacts; `*` also matches `/`.
        workers: Number of workers of the run.
    """
    patterns, files, left = tuple(globs), 0, _MOST_READ
    room = _Room(min(_MOST_CASES, _CASES // workers), _TEXT // workers)
    for path, file in collected(root):
        if not any(fnmatchcase(path, pattern) for pattern in patterns):
            continue
        files += 1
        if files > _MOST_FILES:
            yield f"there are more than {_MOST_FILES} JUnit files: the others were left out"
            return
        try:
            data = file.read(min(_MOST_BYTES, left) + 1)
            left -= len(data)
            # protection: size-of-all-junit-files-limited
            if left < 0:
                yield f"the JUnit files exceed {_MOST_READ // 1024**2} MiB: some were left out"
                return
            yield _parse(data, room)
        except (OSError, UnusableError) as error:
            yield f"{one_line(path)}: {error}"


@dataclass
class _Room:
    """What is left of a worker's share."""

    cases: int
    text: int

    def kept(self, text: str, *, most: int) -> str:
        """Return the part of a text for which there is room."""
        # protection: size-of-tests-texts-limited
        part = text[: min(most, self.text)]
        self.text -= len(part)
        return part


def _parse(data: bytes, room: _Room) -> list[WorkerTest]:
    # protection: size-of-junit-file-limited
    if len(data) > _MOST_BYTES:
        raise UnusableError(f"the file is larger than {_MOST_BYTES // 1024**2} MiB")
    reader = _Reader(room)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(data, True)
    except UnusableError:
        raise
    # protection: odd-encodings-are-named
    except (expat.ExpatError, LookupError, ValueError) as error:
        # Not all encodings that Python knows can be used in XML.
        raise UnusableError(f"the file is not XML ({one_line(str(error))})") from error
    if not reader.is_junit:
        raise UnusableError("the file is not a JUnit file")
    return reader.found


@dataclass
class _Reader:
    """Collects the tests of a file from the events of an XML parser."""

    room: _Room
    found: list[WorkerTest] = field(default_factory=list)
    is_junit: bool = False
    _open: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open:
            self.is_junit = name in ("testsuites", "testsuite")
        self._open.append(name)
        # protection: depth-of-junit-file-limited
        if len(self._open) > _DEEPEST:
            raise UnusableError("the elements are nested too deeply")
        if name == "testcase":
            # protection: number-of-tests-limited
            if self.room.cases <= 0:
                raise UnusableError("the worker has more tests than the report has room for")
            self.room.cases -= 1
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
                message = attributes.get("message", "")
                case.message = self.room.kept(message, most=_LONGEST_TEXT)

    def text(self, text: str) -> None:
        if self._open[-1] in _OUTCOMES and self.found:
            case = self.found[-1]
            case.text += self.room.kept(text, most=_LONGEST_TEXT - len(case.text))

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
