"""Tests that must fail (canaries), which reveal a test runner that a candidate has manipulated.

Canaries are appended to the base commit's own test files. So a check of a single test file runs
them too, and they run in the same process as the product code that the test file imports.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.judging.programs import programs_of

MOST_FILES = 20
"""Maximum number of test files to which tests that must fail are appended."""
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
    """Test files of the base commit with appended tests that must fail, each in a different way."""

    names: tuple[str, ...]
    """The names of the appended tests."""
    files: tuple[tuple[str, bytes], ...]
    """Path and content of each test file, with the appended tests."""


@dataclass(frozen=True)
class _Runner:
    """A test runner: patterns of its commands and test files, and a template of failing tests."""

    command: "re.Pattern[str]"
    files: "re.Pattern[str]"
    """Pattern of the names of the runner's test files."""
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
    """Return tests that must fail, written for the test runner that a check's command starts.

    If the command starts the runner through another program, as `make test` does, the runner is
    found by the names of the test files.

    Args:
        command: The command of the check.
        paths: Paths of the base commit's test files.
        read: Function that returns the content of a test file.

    Returns:
        None if the test runner is unknown, or if none of the paths is a test file of the runner.
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
    """Return, for each command whose test runner is known, tests that must fail."""
    made = {command: make_canary(command, paths, read) for command in commands}
    return {command: canary for command, canary in made.items() if canary is not None}
