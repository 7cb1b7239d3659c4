"""Read an untrusted coverage file that a command wrote: Cobertura's `coverage.xml`, or lcov.

The command executes a candidate's code, so the file may contain anything. Coverage only affects
the order of candidates whose checks pass.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from xml.parsers import expat

from orchestrator.base.text.decode import decode
from orchestrator.base.text.split_lines import split_lines
from orchestrator.review.judging.changes import NewLine

MOST_BYTES = 16 * 1024**2
"""Maximum size in bytes of a coverage file that is read."""
MOST_LINES = 200_000
"""Maximum number of lines of source files in one coverage file."""
_DEEPEST = 50
_SOURCE = re.compile(r"SF:(.{1,4000})")
_LINE = re.compile(r"DA:(\d{1,9}),(\d{1,18})")
Coverage = dict[str, dict[int, bool]]
"""Whether each line of each source file was executed; lines without code are missing."""


class _Lines:
    def __init__(self) -> None:
        self.found: Coverage = {}
        self._number = 0
        self._file: str | None = None
        self._depth = 0

    def begin(self, file: str) -> None:
        self._file = file
        self.found.setdefault(file, {})

    def add(self, line: str, hits: str) -> None:
        if self._file is None or not (line.isdecimal() and hits.isdecimal()):
            return
        self._number += 1
        # protection: coverage-file-has-limited-number-of-lines
        if self._number > MOST_LINES:
            raise ValueError("the coverage file has too many lines")
        lines, number = self.found[self._file], int(line[:9])
        lines[number] = lines.get(number, False) or int(hits[:18]) > 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("the coverage file is nested too deeply")
        if name == "class":
            self.begin(attributes.get("filename", ""))
        elif name == "line":
            self.add(attributes.get("number", ""), attributes.get("hits", ""))

    def end(self, _: str) -> None:
        self._depth -= 1

    def refuse_entity(self, *_: object) -> None:
        raise ValueError("a coverage file must not declare XML entities")


def read_coverage(data: bytes) -> Coverage | None:
    """Return, by file, whether each line was executed; None if the data is not usable."""
    lines, text = _Lines(), decode(data)
    try:
        if text.lstrip().startswith("<"):
            parser = expat.ParserCreate()
            parser.StartElementHandler = lines.start
            parser.EndElementHandler = lines.end
            # Coverage files name a document type. Parsing loads no other file.
            # protection: coverage-file-declares-no-entity
            parser.EntityDeclHandler = lines.refuse_entity
            parser.Parse(data, True)
        else:
            for row in split_lines(text):
                if named := _SOURCE.fullmatch(row.strip()):
                    lines.begin(named[1])
                elif counted := _LINE.match(row.strip()):
                    lines.add(counted[1], counted[2])
    except (expat.ExpatError, ValueError, LookupError):
        return None
    return lines.found or None


def coverage_of(coverage: Coverage | None, added: Iterable[NewLine]) -> float | None:
    """Return the executed part (0 to 1) of a candidate's new lines of code; None if unknown.

    A source file that the coverage file does not name counts as not executed, if the coverage file
    names files with the same extension.
    """
    if coverage is None:
        return None
    kinds = {PurePosixPath(file).suffix for file in coverage}
    executed = counted = 0
    for line in added:
        lines = coverage.get(line.path)
        if lines is None:
            # The coverage file may name the file by a path relative to another directory.
            end = f"/{line.path}"
            others = (
                found
                for file, found in coverage.items()
                if file.endswith(end) or (file and line.path.endswith(f"/{file}"))
            )
            lines = next(others, None)
        if lines is not None and line.number in lines:
            counted += 1
            executed += lines[line.number]
        elif lines is None and PurePosixPath(line.path).suffix in kinds and line.text.strip():
            counted += 1
    return executed / counted if counted else None
