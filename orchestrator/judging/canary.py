"""Tests that must fail (canaries), which reveal a test runner that a candidate has manipulated.

Canaries are appended to the base commit's own test files. So a check of a single test file runs
them too, and they run in the same process as the product code that the test file imports. Their
names are made of words of the test file, and their values are random numbers, so that a candidate
cannot recognise them by a pattern.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.judging.programs import programs_of

MOST_FILES = 20
"""Maximum number of test files to which tests that must fail are appended."""
_LARGEST = 10_000
_WORD = re.compile(rb"[a-z]{3,12}")
MORE_WORDS = ("value", "order", "empty", "first", "last", "error", "same", "other", "missing")
"""Words for names of tests, in addition to those of the test file."""


@dataclass(frozen=True)
class Canary:
    """Test files of the base commit with appended tests that must fail, each in a different way."""

    names: tuple[str, ...]
    """The names of the appended tests."""
    files: tuple[tuple[str, bytes], ...]
    """Path and content of each test file, with the appended tests."""


@dataclass(frozen=True)
class _Form:
    """The form of tests that must fail in one kind of test file."""

    text: str
    """Text with `{0}`, `{1}` for names of tests, `{owner}` and `{alias}` for other names, and
    `{one}` and `{two}` for two different numbers.
    """
    count: int
    """Number of tests in the text."""
    before: str = "test_"
    between: str = "_"
    """Text before and between the words of a test's name."""

    def name(self, words: Sequence[str]) -> str:
        """Return a test's name that consists of the given words."""
        named = words if self.between else [word.capitalize() for word in words]
        return self.before + self.between.join(named)


_PYTHON_CLASS = _Form(
    """

import unittest as {alias}


class {owner}({alias}.TestCase):
    def {0}(self):
        self.assertEqual({one}, {two})

    def {1}(self):
        assert {one} == {two}

    def {2}(self):
        raise ValueError({one})
""",
    count=3,
)
_PYTHON_FUNCTIONS = _Form(
    """

def {0}():
    assert {one} == {two}


def {1}():
    raise ValueError({one})
""",
    count=2,
)
_JEST = _Form(
    """
;test('{0}', () => {{ expect({one}).toBe({two}) }})
;test('{1}', () => {{ throw new Error('{two}') }})
""",
    count=2,
    before="",
    between=" ",
)
_VITEST = _Form(
    """
;import {{ expect as {alias}_expect, test as {alias}_test }} from 'vitest'
;{alias}_test('{0}', () => {{ {alias}_expect({one}).toBe({two}) }})
;{alias}_test('{1}', () => {{ throw new Error('{two}') }})
""",
    count=2,
    before="",
    between=" ",
)
_GO = _Form(
    """

func {0}(t *testing.T) {{
	if {one} != {two} {{
		t.Errorf("{one} != {two}")
	}}
}}

func {1}(t *testing.T) {{
	t.Fatal("{two}")
}}
""",
    count=2,
    before="Test",
    between="",
)


@dataclass(frozen=True)
class _Runner:
    """A test runner: patterns of its commands and test files, and the form of failing tests."""

    command: "re.Pattern[str]"
    files: "re.Pattern[str]"
    """Pattern of the names of the runner's test files."""
    form: _Form


_SCRIPTS = re.compile(r".*\.(test|spec)\.[cm]?[jt]sx?")
_RUNNERS = (
    _Runner(
        command=re.compile(r"\b(pytest|py\.test|unittest|nose2)\b"),
        files=re.compile(r"test.*\.py|.*_test\.py"),
        form=_PYTHON_CLASS,
    ),
    _Runner(command=re.compile(r"\bvitest\b"), files=_SCRIPTS, form=_VITEST),
    _Runner(command=re.compile(r"\bjest\b"), files=_SCRIPTS, form=_JEST),
    _Runner(command=re.compile(r"\bgo test\b"), files=re.compile(r".*_test\.go"), form=_GO),
)
_FUNCTION = re.compile(rb"^def test_", re.MULTILINE)


_INDIRECT = re.compile(
    r"\b(g?make|npm|npx|pnpm|yarn|bun|deno|tox|nox|hatch|just|task|rake|mage|ninja|bazel|turbo|nx)\b"
)
"""Programs that may start a test runner."""


def make_canary(command: str, paths: Sequence[str], read: Callable[[str], bytes]) -> Canary | None:
    """Return tests that must fail, written for the test runner that a check's command starts.

    If the command starts the runner through another program, as `make test` does, the runner is
    found by the names of the test files.

    Args:
        command: The command of the check.
        paths: Paths of the base commit's test files.
        read: Function that returns the content of a test file.

    Returns:
        Test files with failing tests added; None if the test runner is unknown, or if none of
        the paths is a test file of the runner.
    """
    runners = _runners_of(command)
    found = [(path, fit) for path in paths if (fit := _fitting(runners, path))]
    # A check that names a file may run no other file.
    found.sort(key=lambda one: PurePosixPath(one[0]).name.partition(".")[0] not in command)
    names: list[str] = []
    files: list[tuple[str, bytes]] = []
    for path, fit in found[:MOST_FILES]:
        content = read(path)
        form = _form(fit, content)
        made, text = _tests(form, content)
        names += made
        files.append((path, content + text.encode()))
    return Canary(tuple(names), tuple(files)) if files else None


def _form(runners: Sequence[_Runner], content: bytes) -> _Form:
    """Return the form of failing tests that suits a test file with this content."""
    # The first of two runners for the same files is vitest, whose tests name it.
    runner = runners[0] if len(runners) == 1 or b"vitest" in content else runners[1]
    if runner.form is _PYTHON_CLASS and b"TestCase" not in content and _FUNCTION.search(content):
        return _PYTHON_FUNCTIONS
    return runner.form


def _tests(form: _Form, content: bytes) -> tuple[list[str], str]:
    """Return tests that must fail: their names, and their text."""
    words = _unused(content)
    names = [form.name(next(words)) for _ in range(form.count)]
    one, two = secrets.SystemRandom().sample(range(_LARGEST), 2)
    owner = "Test" + "".join(word.capitalize() for word in next(words))
    alias = "_".join(next(words))
    return names, form.text.format(*names, owner=owner, alias=alias, one=one, two=two)


def _unused(content: bytes) -> Iterator[list[str]]:
    """Yield lists of words, each for a name that does not occur in a test file."""
    found = {word.decode() for word in _WORD.findall(content)}
    words = sorted(found.union(MORE_WORDS))
    seen: set[str] = set()
    while True:
        chosen = [secrets.choice(words) for _ in range(3 + secrets.randbelow(2))]
        name = "_".join(chosen)
        if name not in seen and name.encode() not in content:
            seen.add(name)
            yield chosen


def _runners_of(command: str) -> tuple[_Runner, ...]:
    named = tuple(one for one in _RUNNERS if one.command.search(command))
    if named:
        return named[:1]
    is_indirect = _INDIRECT.search(command) is not None or programs_of([command])
    return _RUNNERS if is_indirect else ()


def _fitting(runners: Sequence[_Runner], path: str) -> list[_Runner]:
    name = PurePosixPath(path).name
    return [runner for runner in runners if runner.files.fullmatch(name)]


def make_canaries(
    commands: Sequence[str], paths: Sequence[str], read: Callable[[str], bytes]
) -> dict[str, Canary]:
    """Return, for each command whose test runner is known, tests that must fail."""
    made = {command: make_canary(command, paths, read) for command in commands}
    return {command: canary for command, canary in made.items() if canary is not None}
