"""A real project: see tests/data/judging/README.md. `tests/system` has all eight candidates."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.base.results import Status
from orchestrator.review.landing.branches import Branch
from tests.support import real_case
from tests.support.judging import flags, judge
from tests.support.merges import World
from tests.support.repository import git


@pytest.mark.extra
def test_right_candidate_is_picked_and_edited_tests_do_not_count(
    repo: Path, tmp_path: Path
) -> None:
    real_case.make_project(repo)
    world = World(repo, tmp_path)
    commits = []
    for number, name in enumerate(("right", "edits"), start=1):
        git(repo, "checkout", "-q", "-b", f"architect/parallel-{number}", "main")
        subprocess.run(["sh", "-c", real_case.script_of(name)], cwd=repo, check=True)
        git(repo, "commit", "-qam", name)
        commits.append(git(repo, "rev-parse", "HEAD"))
    git(repo, "checkout", "-q", "main")
    branches = tuple(
        Branch(number, "mend it", world.base, commit, Status.SUCCESS)
        for number, commit in enumerate(commits, start=1)
    )
    judgement = judge(world, branches=branches, checks=(), must_fix=(real_case.SUITE,))
    assert judgement.picked == 1
    assert judgement.without_canary == ()
    assert [flags(one) for one in judgement.ranking] == [[], ["tests_weakened"]]
