"""A judgement whose process kills itself before or after one of its runs of checks.

Usage: `python -m tests.support.dying_judge STEP REPOSITORY SCRATCH BASE COMMIT...`
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.base.results import Status
from orchestrator.review.judging.check_run import CheckRun, Watched
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.landing.branches import Branch
from tests.support.judging import FAST, LocalChecks, judge
from tests.support.merges import World


class Dying(LocalChecks):
    """Kills the process at one step; every run of checks is two steps."""

    def __init__(self, world: World, step: int) -> None:
        super().__init__(world)
        self.left = step

    def __call__(
        self, commit: str, commands: Sequence[str], *, watched: Sequence[Watched] = ()
    ) -> list[CheckRun]:
        self._step()
        found = super().__call__(commit, commands, watched=watched)
        self._step()
        return found

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def judge_commits(world: World, commits: Sequence[str], checks: LocalChecks) -> Judgement:
    """Judge the commits of workers, numbered from 1."""
    branches = tuple(
        Branch(number, f"task {number}", world.base, commit, Status.SUCCESS)
        for number, commit in enumerate(commits, start=1)
    )
    return judge(world, branches=branches, run=checks, checks=(FAST,), lint=("cat calc.py",))


if __name__ == "__main__":
    step, repo, scratch, base, *commits = sys.argv[1:]
    world = World(Path(repo), Path(scratch))
    world.base = base
    judge_commits(world, commits, Dying(world, int(step)))
