"""Read an untrusted JUnit file that a check wrote: bounded, and without XML entities.

The check executes a candidate's code, so the file may contain anything. The file can only make a
result worse, because the exit code of the check decides whether the check passes.
"""

from xml.parsers import expat

from orchestrator.judging.check_run import Outcome
from orchestrator.text.sanitize import one_line

MOST_BYTES = 8 * 1024**2
"""Maximum size in bytes of a JUnit file that is read."""
MOST_CASES = 10_000
"""Maximum number of tests in one JUnit file."""
_DEEPEST = 50
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
    parser = expat.ParserCreate()
    parser.StartElementHandler = cases.start
    parser.EndElementHandler = cases.end
    parser.StartDoctypeDeclHandler = cases.refuse
    parser.EntityDeclHandler = cases.refuse
    try:
        parser.Parse(data[:MOST_BYTES], True)
    except (expat.ExpatError, ValueError, LookupError):
        return None
    return cases.found
