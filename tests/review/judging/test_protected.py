"""Tests of checks on merged commits: a branch cannot hide failing tests from a merge queue."""

import pytest

from orchestrator.config.settings.judging import Tests
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import Answer
from orchestrator.review.judging.protected import Protection
from tests.support.judging import CHECK, RIGHT, LocalChecks, local_tester
from tests.support.landing import branch
from tests.support.merges import WHEN, World
from tests.support.repository import git

EXITS = "import os\nos._exit(0)\n"


@pytest.mark.parametrize("path", ["difflib.py", "argparse/__init__.py", "src/iniconfig.py"])
def test_new_module_of_a_test_runner_is_left_out(world: World, path: str) -> None:
    commit = world.commit({path: "raise SystemExit(0)\n", "mine/difflib.py": ""})
    protection = Protection(Repository(world.repo), world.base, "extend", WHEN)
    there = git(world.repo, "ls-tree", "-r", "--name-only", protection.of(commit)).splitlines()
    assert path not in there
    assert "mine/difflib.py" in there


def test_module_that_the_target_has_is_the_product(world: World) -> None:
    base = world.commit({"queue.py": "a = 1\n"})
    commit = world.commit({"queue.py": "a = 2\n"}, base)
    assert Protection(Repository(world.repo), base, "extend", WHEN).of(commit) == commit


@pytest.mark.parametrize(
    ("text", "tests", "answer"),
    [(EXITS, "extend", "fail"), (RIGHT, "extend", "pass"), (EXITS, "free", "pass")],
)
def test_commit_that_hides_failing_tests_fails(
    world: World, text: str, tests: Tests, answer: Answer
) -> None:
    commit, checks = world.commit({"calc.py": text}), LocalChecks(world)
    protection = Protection(Repository(world.repo), world.base, tests, WHEN)
    tester = local_tester(checks)
    assert protection.reports_failures(world.base, [CHECK], tester) == "pass"
    assert not checks.runs, "the target was tested already"
    assert protection.reports_failures(commit, [CHECK, "true"], tester) == answer
    runs = checks.runs.total()
    assert runs == {"free": 0, "extend": 4 if answer == "pass" else 6}[tests]
    assert protection.reports_failures(commit, [CHECK, "true"], tester) == answer
    assert checks.runs.total() == runs, "results are kept"


def test_branch_that_touches_the_test_runner_needs_a_person(world: World) -> None:
    cheat = branch(world, 1, {"calc.py": RIGHT, "more.py": "import unittest\n"})
    honest = branch(world, 2, {"calc.py": RIGHT, "tests/test_more.py": "import unittest\n"})
    extend = Protection(Repository(world.repo), world.base, "extend", WHEN)
    assert extend.touches(cheat) == "more.py:1 imports `unittest`"
    assert extend.touches(honest) is None
    assert Protection(Repository(world.repo), world.base, "free", WHEN).touches(cheat) is None


TABLE = """import unittest

from calc import area

CASES = [(3, 4, 12), (31, 11, 341)]


class TestCalc(unittest.TestCase):
    def check(self, width, height, expected):
        self.assertEqual(area(width, height), expected)

    def test_area(self):
        for case in CASES:
            self.check(*case)

    def test_other(self):
        self.assertEqual(1, len("a"))

    def test_smoke(self):
        area(1, 2)
"""


@pytest.mark.parametrize(("name", "answer"), [("test_area", "fail"), ("test_smoke", "fail"),
                                              ("no_test", "pass")])  # fmt: skip
def test_each_test_of_the_target_is_proved(world: World, name: str, answer: Answer) -> None:
    """Code that needs no name of the runner switches one test off."""
    world.base = world.commit({"calc.py": RIGHT, "tests/test_calc.py": TABLE})
    quiet = QUIET.replace("NAME", name)
    commit, checks = world.commit({"calc.py": RIGHT + quiet}, world.base), LocalChecks(world)
    protection = Protection(Repository(world.repo), world.base, "extend", WHEN)
    tester = local_tester(checks)
    assert protection.reports_failures(commit, [CHECK, "true"], tester) == answer
    assert protection.untried == ("true",)


QUIET = """

def _quiet():
    case = type(name).mro()[-1].__subclasses__()
    case = next(one for one in case if one.__name__ == "TestCase")
    call = case._callTestMethod
    case._callTestMethod = lambda self, method: method.__name__ == "NAME" or call(self, method)


_quiet()
"""
