"""A project with a bug and a test for it, candidates, and checks that run as plain processes."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import CheckRun, Tester, Watched
from orchestrator.review.judging.coverage_file import read_coverage
from orchestrator.review.judging.failing_tests import find_failed_tests, read_cases
from orchestrator.review.judging.judge import judge_run
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.judging.judgement import Candidate, Judgement
from orchestrator.review.landing.branches import Branch, RunBranches
from tests.support.landing import branch
from tests.support.merges import WHEN, Content, World
from tests.support.repository import git

CHECK = f"{sys.executable} -m unittest discover -s tests -t ."
FAST = "grep -q 'width [*] height' calc.py"
"""A check that takes no time, for tests that are not about tests."""
PRODUCT = """def area(width, height):
    return width + height


def name(kind):
    return kind.upper()
"""
RIGHT = PRODUCT.replace("width + height", "width * height")
TESTS = """import unittest

from calc import area, name


class TestCalc(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(1234567, 2), 2469134)

    def test_name(self):
        self.assertEqual(name("a"), "A")
"""
FILES = {"calc.py": PRODUCT, "tests/__init__.py": "", "tests/test_calc.py": TESTS}


class LocalChecks:
    """Runs checks in a checkout, without a container, and counts the runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs: Counter[tuple[str, str]] = Counter()

    def __call__(
        self, commit: str, commands: Sequence[str], *, watched: Sequence[Watched] = ()
    ) -> list[CheckRun]:
        place = Path(tempfile.mkdtemp(prefix="tree-", dir=self.world.scratch))
        packed = subprocess.run(
            ["git", "archive", commit], cwd=self.world.repo, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x"], cwd=place, input=packed.stdout, check=True)
        return [self._check(place, commit, command, watched) for command in commands]

    def _check(
        self, place: Path, commit: str, command: str, watched: Sequence[Watched]
    ) -> CheckRun:
        tree = git(self.world.repo, "rev-parse", f"{commit}^{{tree}}")
        self.runs[tree, command] += 1
        junit = self.world.scratch / "junit.xml"
        junit.unlink(missing_ok=True)
        coverage = self.world.scratch / "coverage"
        coverage.unlink(missing_ok=True)
        env = {
            **os.environ,
            "ORCHESTRATOR_JUNIT": str(junit),
            "ORCHESTRATOR_COVERAGE": str(coverage),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(["sh", "-c", command], cwd=place, env=env, capture_output=True)
        written = junit.read_bytes() if junit.exists() else b""
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        cases = read_cases(written) if written else None
        return CheckRun(
            answer="fail" if done.returncode else "pass",
            exit_code=done.returncode,
            cases=cases,
            coverage=read_coverage(coverage.read_bytes()) if coverage.exists() else None,
            output=done.stdout.decode(),
            failed=find_failed_tests(said, cases, watched),
        )


def local_tester(run: Any) -> Tester:
    """Return how checks are run, for code that stores their results."""
    return Tester(run=run, identity="local")


def judge(
    world: World,
    *candidates: Mapping[str, Content],
    run: Any = None,
    branches: tuple[Branch, ...] = (),
    **rules: Any,
) -> Judgement:
    """Judge candidates, numbered from 1, which changed these files; or these branches."""
    branches = branches or tuple(
        branch(world, number, files) for number, files in enumerate(candidates, start=1)
    )
    (Repository(world.repo).state_dir / "runs" / "run").mkdir(parents=True, exist_ok=True)
    tester = local_tester(run or LocalChecks(world))
    wanted = JudgingRules(**{"checks": (CHECK,), **rules})
    return judge_run(
        Repository(world.repo), [RunBranches("run", WHEN, False, branches)], wanted, tester
    )


def flags(candidate: Candidate, *, out: bool = True) -> list[str]:
    """Return the kinds of a candidate's flags."""
    return [flag.flag for flag in candidate.flags if flag.out == out]


def commit_shop(repo: Path) -> None:
    """Write `FILES` to a repository, and commit them."""
    for name, text in FILES.items():
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a shop")
