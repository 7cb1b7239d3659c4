"""Tests of a judgement whose process is killed."""

import os
import signal
from collections.abc import Sequence

import pytest

from orchestrator.judging.check_run import CheckRun
from orchestrator.judging.judgement import Judgement
from orchestrator.landing.branches import Branch
from tests.support.judging import FAST, PRODUCT, RIGHT, LocalChecks, judge
from tests.support.landing import branch
from tests.support.merges import World


class Dying(LocalChecks):
    """Kills the process at one of its runs, before or after the checks."""

    def __init__(self, world: World, step: int) -> None:
        super().__init__(world)
        self.left = step

    def __call__(
        self, commit: str, commands: Sequence[str], *, canary: tuple[str, ...] = ()
    ) -> list[CheckRun]:
        self._step()
        found = super().__call__(commit, commands, canary=canary)
        self._step()
        return found

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _judge(world: World, branches: tuple[Branch, ...], checks: LocalChecks) -> Judgement:
    return judge(world, branches=branches, run=checks, checks=(FAST,), lint=("cat calc.py",))


@pytest.mark.parametrize("step", range(2, 13, 3))
def test_killed_judgement_is_repeated_with_the_same_result(world: World, step: int) -> None:
    right, wrong = {"calc.py": RIGHT}, {"calc.py": PRODUCT + "\n"}
    branches = branch(world, 1, right), branch(world, 2, wrong)
    child = os.fork()
    if child == 0:
        _judge(world, branches, Dying(world, step))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    checks = LocalChecks(world)
    judgement = _judge(world, branches, checks)
    assert (judgement.number, judgement.pick) == (1, 1)
    assert [one.verdict for one in judgement.candidates[0].checks] == ["fixed"]
    assert judgement == _judge(world, branches, LocalChecks(world)).model_copy(update={"number": 1})
    assert sum(checks.runs.values()) == 7 - (step - 1) // 2, "finished checks run only once"
