"""Tests that must fail (canaries), which reveal a test runner that a candidate has manipulated.

They are added at the end of the base's own test files, so that they run wherever these run: by a
check of a single file too, and together with the product that the file imports.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.judging.programs import programs_of

MOST_FILES = 20
"""Maximum number of test files to which tests that must fail are added."""
_PYTHON_TEST = """

import unittest as {name}_unittest


class Test{name}({name}_unittest.TestCase):
    def test_{name}_equal(self):
        self.assertEqual(1, 2)

    def test_{name}_plain(self):
        assert 1 == 2

    def test_{name}_raised(self):
        raise ValueError("{name}")
"""
_JEST_TEST = """
;test('{name}_equal', () => {{ expect(1).toBe(2) }})
;test('{name}_raised', () => {{ throw new Error('{name}') }})
"""
_VITEST_TEST = """
;import {{ expect as {name}_expect, test as {name}_test }} from 'vitest'
;{name}_test('{name}_equal', () => {{ {name}_expect(1).toBe(2) }})
;{name}_test('{name}_raised', () => {{ throw new Error('{name}') }})
"""
_GO_TEST = """

func Test_{name}_equal(t *testing.T) {{
	if 1 != 2 {{
		t.Errorf("1 != 2")
	}}
}}

func Test_{name}_fatal(t *testing.T) {{
	t.Fatal("{name}")
}}
"""


@dataclass(frozen=True)
class Canary:
    """Test files of the base with additional tests that must fail, each in a different way."""

    names: tuple[str, ...]
    """The names of the additional tests."""
    files: tuple[tuple[str, bytes], ...]
    """Path and content of each file."""


@dataclass(frozen=True)
class _Runner:
    """A test runner: how commands name it, and how its tests look."""

    command: "re.Pattern[str]"
    files: "re.Pattern[str]"
    """Names of files with tests."""
    tests: str
    kinds: tuple[str, ...]


_SCRIPTS = re.compile(r".*\.(test|spec)\.[cm]?[jt]sx?")
_RUNNERS = (
    _Runner(
        command=re.compile(r"\b(pytest|py\.test|unittest|nose2)\b"),
        files=re.compile(r"test.*\.py|.*_test\.py"),
        tests=_PYTHON_TEST,
        kinds=("equal", "plain", "raised"),
    ),
    _Runner(
        command=re.compile(r"\bvitest\b"),
        files=_SCRIPTS,
        tests=_VITEST_TEST,
        kinds=("equal", "raised"),
    ),
    _Runner(
        command=re.compile(r"\bjest\b"),
        files=_SCRIPTS,
        tests=_JEST_TEST,
        kinds=("equal", "raised"),
    ),
    _Runner(
        command=re.compile(r"\bgo test\b"),
        files=re.compile(r".*_test\.go"),
        tests=_GO_TEST,
        kinds=("equal", "fatal"),
    ),
)


_INDIRECT = re.compile(
    r"\b(g?make|npm|npx|pnpm|yarn|bun|deno|tox|nox|hatch|just|task|rake|mage|ninja|bazel|turbo|nx)\b"
)
"""Programs that may start a test runner."""


def make_canary(command: str, paths: Sequence[str], read: Callable[[str], bytes]) -> Canary | None:
    """Return tests that must fail, for a command's test runner.

    If the command starts another program, such as `make test`, the names of the test files show the
    runner.

    Args:
        command: The check.
        paths: The tests of the base.
        read: Returns the content of one of the tests.

    Returns:
        None if the runner is unknown, or has no test file.
    """
    runners = _runners_of(command)
    found = [(path, fit) for path in paths if (fit := _fitting(runners, path))]
    # A check that names a file may run no other file.
    found.sort(key=lambda one: PurePosixPath(one[0]).name.partition(".")[0] not in command)
    names: list[str] = []
    files: list[tuple[str, bytes]] = []
    for path, fit in found[:MOST_FILES]:
        name, content = f"c{secrets.token_hex(6)}", read(path)
        # The first of two runners for the same files is vitest, whose tests name it.
        runner = fit[0] if len(fit) == 1 or b"vitest" in content else fit[1]
        names += [f"{name}_{kind}" for kind in runner.kinds]
        files.append((path, content + runner.tests.format(name=name).encode()))
    return Canary(tuple(names), tuple(files)) if files else None


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
    """Return tests that must fail, by command, for the commands whose test runner is known."""
    made = {command: make_canary(command, paths, read) for command in commands}
    return {command: canary for command, canary in made.items() if canary is not None}
