"""Tests of checks on merged commits: a branch cannot hide failing tests from a merge queue."""

import pytest

from orchestrator.config.judging import Tests
from orchestrator.git.repository import Repository
from orchestrator.judging.check_run import Answer
from orchestrator.judging.protected import Protection
from tests.support.judging import CHECK, RIGHT, LocalChecks, local_tester
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
