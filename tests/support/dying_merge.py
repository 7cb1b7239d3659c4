"""A merge whose process kills itself at one call of one function.

Usage: `python -m tests.support.dying_merge MODULE:NAME WHEN REPOSITORY FORM ACTION BASE COMMIT...`,
where WHEN is `before` or `after`, and ACTION is `merge` or `undo`.
"""

import sys
from pathlib import Path

from orchestrator.base.results import Status
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.review.landing.land import undo
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from tests.support.dying_run import die_at
from tests.support.merges import WHEN

if __name__ == "__main__":
    target, when, repo, form, action, base, *commits = sys.argv[1:]
    die_at(target, when, 1)
    repository = Repository(Path(repo))
    if action == "undo":
        undo(repository, into="main", run_id=None)
    else:
        branches = tuple(
            Branch(number, f"task {number}", base, commit, Status.SUCCESS)
            for number, commit in enumerate(commits, start=1)
        )
        run = RunBranches("run", WHEN, False, branches)
        merge_branches(repository, run, Wish(named=True, request=MergeRequest(form=form)))  # type: ignore[arg-type]
