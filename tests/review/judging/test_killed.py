"""Tests of a judgement whose process is killed."""

import os
import signal

import pytest

from tests.support import forks
from tests.support.dying_judge import judge_commits
from tests.support.judging import PRODUCT, RIGHT, LocalChecks
from tests.support.merges import World
from tests.support.named_tests import ROOT

OFTEN = (2, 5)
"""Steps at which `make test` kills the process; `make variants` does so at every step."""
STEPS = [step if step in OFTEN else pytest.param(step, marks=pytest.mark.extra)
         for step in range(1, 15)]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_killed_judgement_is_repeated_with_the_same_result(world: World, step: int) -> None:
    commits = [world.commit({"calc.py": RIGHT}), world.commit({"calc.py": PRODUCT + "\n"})]
    places = [str(step), str(world.repo), str(world.scratch), world.base]
    words = (*places, *commits)
    killed = forks.run("tests.support.dying_judge", words, cwd=ROOT, env=os.environ)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    checks = LocalChecks(world)
    judgement = judge_commits(world, commits, checks)
    assert (judgement.number, judgement.ranking[0].worker_id) == (1, 1)
    assert [one.verdict for one in judgement.ranking[0].checks] == ["fixed"]
    again = judge_commits(world, commits, LocalChecks(world))
    assert judgement == again.model_copy(update={"number": 1})
    assert sum(checks.runs.values()) == 7 - (step - 1) // 2, "finished checks run only once"
