"""Tests that must fail (canaries), which reveal a test runner that a candidate has manipulated."""

import re
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

_PYTHON = re.compile(r"\b(pytest|py\.test|unittest|nose2)\b")
_JAVASCRIPT = re.compile(r"\bjest\b")
_PYTHON_TEST = """import unittest


class Test{name}(unittest.TestCase):
    def test_{name}_equal(self):
        self.assertEqual(1, 2)

    def test_{name}_plain(self):
        assert 1 == 2

    def test_{name}_raised(self):
        raise ValueError("{name}")
"""
_JAVASCRIPT_TEST = """test('{name}_equal', () => {{ expect(1).toBe(2) }})
test('{name}_raised', () => {{ throw new Error('{name}') }})
"""
_PYTHON_KINDS: tuple[str, ...] = ("equal", "plain", "raised")
_JAVASCRIPT_KINDS: tuple[str, ...] = ("equal", "raised")


@dataclass(frozen=True)
class Canary:
    """A file with tests that must fail, each in a different way."""

    names: tuple[str, ...]
    """The names of the tests."""
    path: str
    content: bytes


def make_canary(command: str, paths: Iterable[str]) -> Canary | None:
    """Return tests that must fail, for a command's test runner; None if the runner is unknown.

    Args:
        command: The check.
        paths: The tests of the base; the new test is put beside them.
    """
    name = f"c{secrets.token_hex(6)}"
    if _PYTHON.search(command):
        ending, file, content, kinds = ".py", f"test_{name}.py", _PYTHON_TEST, _PYTHON_KINDS
    elif _JAVASCRIPT.search(command):
        ending, file, content = ".test.js", f"{name}.test.js", _JAVASCRIPT_TEST
        kinds = _JAVASCRIPT_KINDS
    else:
        return None
    places = Counter(str(PurePosixPath(path).parent) for path in paths if _is_test(path, ending))
    folder = places.most_common(1)[0][0] if places else "."
    path = file if folder == "." else f"{folder}/{file}"
    names = tuple(f"{name}_{kind}" for kind in kinds)
    return Canary(names, path, content.format(name=name).encode())


def _is_test(path: str, ending: str) -> bool:
    name = PurePosixPath(path).name
    return name.endswith(ending) and (ending != ".py" or name.startswith("test"))
