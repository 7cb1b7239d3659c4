"""Tests of checks on merged commits: a branch cannot hide failing tests from a merge queue."""

import pytest

from orchestrator.git.repository import Repository
from orchestrator.judging.check_run import Answer, Tests
from orchestrator.judging.protected import Protection
from tests.support.judging import CHECK, RIGHT, LocalChecks, local_tester
from tests.support.merges import WHEN, World

EXITS = "import os\nos._exit(0)\n"


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
