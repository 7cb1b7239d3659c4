"""A merge with an agent for conflicts, whose process kills itself at one call of one function.

Usage: `python -m tests.support.dying_resolution MODULE:NAME WHEN NTH REPOSITORY SCRATCH TASK BASE
COMMIT...`, where WHEN is `before` or `after`.
"""

import sys
from pathlib import Path

from orchestrator.base.results import Status
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.resolution import Resolver
from orchestrator.runs.purposes.conflict_agent import ConflictAgent
from tests.support.dying_run import die_at
from tests.support.local_engine import LocalEngine
from tests.support.merges import WHEN
from tests.support.runs import configured

if __name__ == "__main__":
    target, when, nth, repo, scratch, task, base, *commits = sys.argv[1:]
    die_at(target, when, int(nth))
    branches = tuple(
        Branch(number, f"task {number}", base, commit, Status.SUCCESS)
        for number, commit in enumerate(commits, start=1)
    )
    run = RunBranches("run", WHEN, False, branches)
    engine = LocalEngine(Path(scratch))
    agent = ConflictAgent(configured(task), Path(repo), engine, checked=False)
    request = MergeRequest(on_conflict="agent")
    wish = Wish(named=True, request=request, resolver=Resolver(agent=agent))
    merge_branches(Repository(Path(repo)), run, wish)
