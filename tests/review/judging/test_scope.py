"""Tests of candidates that change files which their task does not allow to change."""

from orchestrator.config.settings.run import Triggers
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judge import judge_run
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.landing.branches import read_branches
from tests.support.judging import FAST, LocalChecks, local_tester
from tests.support.local_engine import LocalEngine
from tests.support.merges import World
from tests.support.runs import shell_run

FIX = "sed -i 's/width + height/width * height/' calc.py"


def test_files_outside_of_the_paths_of_a_task_are_told(
    world: World, local_engine: LocalEngine
) -> None:
    paths = Triggers(paths=("calc.py", "docs/"))
    stray = f"{FIX}; mkdir docs; touch docs/a note; rm tests/__init__.py"
    shell_run(world.repo, local_engine, stray, FIX, triggers=paths)
    repository = Repository(world.repo)
    rules, tester = JudgingRules(checks=(FAST,)), local_tester(LocalChecks(world))
    judgement = judge_run(repository, [read_branches(repository, None)], rules, tester)
    told = {
        one.worker_id: [(flag.file, flag.out) for flag in one.flags if flag.flag == "scope"]
        for one in judgement.ranking
    }
    assert told == {1: [("tests/__init__.py", False), ("note", False)], 2: []}
    assert [one.passes for one in judgement.ranking] == [True, True]
