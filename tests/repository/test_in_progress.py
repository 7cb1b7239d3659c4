"""Tests that a state in the middle of a git operation is no base for workers."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.repository.checkouts.in_progress import check_settled
from orchestrator.repository.repository import Repository
from tests.support.errors import raises
from tests.support.repository import git

BEGIN = {
    "a merge": "git merge other",
    "a rebase": "git rebase other",
    "a rebase of patches": "git rebase --apply other",
    "`git am`": "git format-patch -1 --stdout other | git am",
    "a cherry-pick": "git cherry-pick other",
    "a revert": "git revert --no-edit HEAD~1",
    "a bisection": "git bisect start",
    "the resolution of conflicts (`a.txt`)": "git stash apply kept",
}


@pytest.mark.parametrize("name", BEGIN)
def test_operation_in_progress_is_named(repo: Path, name: str) -> None:
    for branch in ("other", "mine", "kept"):
        git(repo, "checkout", "-q", "-B", branch, "main")
        for text in (f"{branch} 1\n", f"{branch} 2\n"):
            (repo / "a.txt").write_text(text)
            git(repo, "commit", "-qam", branch)
    (repo / "a.txt").write_text("stashed\n")
    stash = git(repo, "stash", "create")
    git(repo, "reset", "-q", "--hard")
    git(repo, "checkout", "-q", "mine")
    check_settled(Repository(repo))

    begin = BEGIN[name].replace("kept", stash)
    subprocess.run(["sh", "-c", begin], cwd=repo, check=False, capture_output=True)

    shown = name.removesuffix(" of patches")
    with raises("operation.in-progress", shown):
        check_settled(Repository(repo))
