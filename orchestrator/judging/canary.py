"""Tests that must fail (canaries), which reveal a test runner that a candidate has manipulated."""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_PYTHON_TEST = """import unittest


class Test{name}(unittest.TestCase):
    def test_{name}_equal(self):
        self.assertEqual(1, 2)

    def test_{name}_plain(self):
        assert 1 == 2

    def test_{name}_raised(self):
        raise ValueError("{name}")
"""
_JEST_TEST = """test('{name}_equal', () => {{ expect(1).toBe(2) }})
test('{name}_raised', () => {{ throw new Error('{name}') }})
"""
_VITEST_TEST = "import {{ expect, test }} from 'vitest'\n\n" + _JEST_TEST
_GO_TEST = """package {package}

import "testing"

func Test_{name}_equal(t *testing.T) {{
	if 1 != 2 {{
		t.Errorf("1 != 2")
	}}
}}

func Test_{name}_fatal(t *testing.T) {{
	t.Fatal("{name}")
}}
"""
_PACKAGE = re.compile(rb"^package[ \t]+(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Canary:
    """A file with tests that must fail, each in a different way."""

    names: tuple[str, ...]
    """The names of the tests."""
    path: str
    content: bytes


@dataclass(frozen=True)
class _Runner:
    """A test runner: how commands name it, and how a file with tests looks."""

    command: "re.Pattern[str]"
    file: str
    content: str
    kinds: tuple[str, ...]
    others: "re.Pattern[str]"
    """Names of files with tests, beside which a file is put."""


_SCRIPTS = re.compile(r".*\.(test|spec)\.[cm]?[jt]sx?")
_RUNNERS = (
    _Runner(
        command=re.compile(r"\b(pytest|py\.test|unittest|nose2)\b"),
        file="test_{name}.py",
        content=_PYTHON_TEST,
        kinds=("equal", "plain", "raised"),
        others=re.compile(r"test.*\.py"),
    ),
    _Runner(
        command=re.compile(r"\bvitest\b"),
        file="{name}.test.js",
        content=_VITEST_TEST,
        kinds=("equal", "raised"),
        others=_SCRIPTS,
    ),
    _Runner(
        command=re.compile(r"\bjest\b"),
        file="{name}.test.js",
        content=_JEST_TEST,
        kinds=("equal", "raised"),
        others=_SCRIPTS,
    ),
    _Runner(
        command=re.compile(r"\bgo test\b"),
        file="{name}_test.go",
        content=_GO_TEST,
        kinds=("equal", "fatal"),
        others=re.compile(r".*_test\.go"),
    ),
)


def make_canary(command: str, paths: Sequence[str], read: Callable[[str], bytes]) -> Canary | None:
    """Return tests that must fail, for a command's test runner; None if the runner is unknown.

    Args:
        command: The check.
        paths: The tests of the base; the new test is put beside them.
        read: Returns the content of one of the tests.
    """
    runner = next((one for one in _RUNNERS if one.command.search(command)), None)
    if runner is None:
        return None
    others = [path for path in paths if runner.others.fullmatch(PurePosixPath(path).name)]
    folders = Counter(str(PurePosixPath(path).parent) for path in others)
    folder = folders.most_common(1)[0][0] if folders else "."
    name = f"c{secrets.token_hex(6)}"
    beside = next((path for path in others if str(PurePosixPath(path).parent) == folder), None)
    declared = _PACKAGE.search(read(beside)) if beside and "{package}" in runner.content else None
    package = declared[1].decode() if declared else "main"
    file = runner.file.format(name=name)
    return Canary(
        names=tuple(f"{name}_{kind}" for kind in runner.kinds),
        path=file if folder == "." else f"{folder}/{file}",
        content=runner.content.format(name=name, package=package).encode(),
    )
