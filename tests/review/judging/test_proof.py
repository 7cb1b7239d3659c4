"""Tests of the proof of single tests: what no mutant of its own proves is never picked."""

import sys

import pytest

from orchestrator.review.judging.judgement import Judgement
from tests.support.judging import CHECK, PRODUCT, RIGHT, judge
from tests.support.merges import World

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider tests"
BY_NAME = """

import unittest

_CALL = unittest.TestCase._callTestMethod


def _quiet(self, method):
    if method.__name__ != "test_area":
        return _CALL(self, method)


unittest.TestCase._callTestMethod = _quiet
"""
"""Switches the deciding test off by its name."""
BY_ITEM = """

import sys

_run = sys.modules["_pytest.runner"].runtestprotocol


def _quiet(item, *args, **options):
    if item.name.startswith("test_area"):
        item.obj = lambda **_: None
    return _run(item, *args, **options)


sys.modules["_pytest.runner"].runtestprotocol = _quiet
"""
HEAD = """import unittest

import pytest

from calc import area, name

CASES = [(3, 4, 12), (31, 11, 341), (1234567, 2, 2469134)]
ROWS = {"small": {"sides": (3, 4), "want": 12}, "large": {"sides": (31, 11), "want": 341}}
EXPECTED = 341


class TestName(unittest.TestCase):
    def test_name(self):
        self.assertEqual(name("a"), "A")

"""
CLASS = HEAD + "\nclass TestArea(unittest.TestCase):\n"
SHAPES = {
    "constant table": CLASS + """
    def test_area(self):
        for width, height, expected in CASES:
            with self.subTest(width=width):
                self.assertEqual(area(width, height), expected)
""",
    "table of the class": CLASS + """
    TABLE = (((3, 4), 12), ((31, 11), 341))

    def test_area(self):
        for sides, expected in self.TABLE:
            self.assertEqual(area(*sides), expected, f"{sides}: {expected}")
""",
    "named cells": CLASS + """
    def test_area(self):
        for title, case in ROWS.items():
            with self.subTest(title):
                self.assertEqual(area(*case["sides"]), case["want"])
""",
    "helper": CLASS + """
    def check(self, width, height, expected):
        self.assertEqual(area(width, height), expected)

    def test_area(self):
        self.check(31, 11, 341)
        self.check(height=4, width=3, expected=12)
""",
    "helper of another file": CLASS.replace("import pytest\n", "import tests.support\n") + """
    def test_area(self):
        tests.support.compare(self, (31, 11), 341)
""",
    "set up": CLASS + """
    def setUp(self):
        self.expected = 341

    def test_area(self):
        self.assertEqual(area(31, 11), self.expected)
""",
    "in a condition": CLASS + """
    def test_area(self):
        for width, height, expected in CASES:
            try:
                if width > 3:
                    self.assertEqual(area(width, height), expected)
            finally:
                self.done = True
""",
    "inherited": CLASS.replace("TestArea(unittest.TestCase)", "Base") + """
    sides = (31, 11)

    def test_area(self):
        self.assertEqual(area(*self.sides), EXPECTED)


class TestArea(Base, unittest.TestCase):
    pass
""",
    "parameters": HEAD + """
@pytest.mark.parametrize(("width", "height", "expected"), CASES)
def test_area(width, height, expected):
    assert area(width, height) == expected
""",
    "named parameters": HEAD + """
@pytest.mark.parametrize("case", [pytest.param(one, id=key) for key, one in ROWS.items()])
def test_area(case):
    assert area(*case["sides"]) == case["want"]
""",
    "fixture": HEAD + """
@pytest.fixture
def expected():
    return 341


def test_area(expected):
    assert area(31, 11) == expected
""",
    "snapshot": HEAD + """
SNAPSHOT = \"\"\"
3 by 4: 12
31 by 11: 341
\"\"\"


def test_area():
    rows = [f"{one} by {other}: {area(one, other)}" for one, other, _ in CASES[:2]]
    assert rows == SNAPSHOT.strip().splitlines()
""",
}  # fmt: skip
UNITTEST = {name: text for name, text in SHAPES.items() if "class TestArea" in text}
SUPPORT = """from calc import area


def compare_all():
    assert [area(3, 4), area(5, 6)] == [12, 30]


def compare(case, sides, wanted):
    case.assertEqual(area(*sides), wanted)
"""
QUICK = ("helper", "parameters")


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start pytest without the plugins of this environment, which takes half the time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def _judged(world: World, shape: str) -> Judgement:
    is_unittest = shape in UNITTEST
    world.base = world.commit({"tests/test_calc.py": SHAPES[shape], "tests/support.py": SUPPORT})
    cheat = PRODUCT + (BY_NAME if is_unittest else BY_ITEM)
    check = CHECK if is_unittest else PYTEST
    candidates = ({"calc.py": cheat}, {"calc.py": RIGHT})
    return judge(world, *candidates, checks=(), must_fix=(check,))


@pytest.mark.variants("helper")
@pytest.mark.parametrize("shape", SHAPES)
def test_test_that_is_switched_off_by_name_proves_nothing(world: World, shape: str) -> None:
    judgement = _judged(world, shape)
    found = {one.worker_id: one for one in judgement.ranking}
    assert judgement.picked == 2
    assert found[2].flags == ()
    assert {flag.flag for flag in found[1].flags} & {"forged", "unproved"}


@pytest.mark.parametrize("files", [{}, {"tests/test_more.py": "def test_more(): ...\n"}])
def test_test_without_a_mutant_of_its_own_is_named(world: World, files: dict[str, str]) -> None:
    text = CLASS.replace("import pytest\n", "import tests.support\n")
    text += "    def test_area(self):\n        tests.support.compare_all()\n"
    world.base = world.commit({
        "tests/test_calc.py": text,
        "tests/support.py": SUPPORT,
    })  # fmt: skip
    judgement = judge(world, {"calc.py": RIGHT, **files}, checks=(), must_fix=(CHECK,))
    (one,) = judgement.ranking
    (flag,) = one.flags
    assert (flag.flag, flag.tests) == ("unproved", ("tests/test_calc.py::test_area",))
    assert (one.passes, judgement.decision) == (True, "undecided")
    assert "tests/test_calc.py::test_area" in flag.message


def test_check_that_does_not_name_the_failing_tests_proves_nothing(world: World) -> None:
    """The check fails on the base because of something that is no test."""
    check = f"{CHECK.replace('discover -s tests -t .', 'tests.test_name')} && grep -q '[*]' calc.py"
    world.base = world.commit({"tests/test_name.py": HEAD.replace("import pytest\n", "")})
    judgement = judge(world, {"calc.py": RIGHT}, checks=(), must_fix=(check,))
    (flag,) = judgement.ranking[0].flags
    assert (flag.flag, judgement.picked) == ("unproved", None)
    assert "does not name the tests that fail" in flag.message
