"""Tests that no short name of a worker's branch means another ref."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.repository.commits.changes import branch_to_type
from orchestrator.repository.ref_names import numbers_in_refs
from orchestrator.repository.repository import Repository
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run

AMBIGUOUS = [
    "refs/tags/architect/parallel-1",
    "refs/architect/parallel-1",
    "refs/remotes/architect/parallel-1",
    "refs/remotes/architect/parallel-1/HEAD",
]


@pytest.mark.parametrize(
    "ref",
    [*AMBIGUOUS, "refs/heads/architect/parallel-1/x", "refs/heads/Architect/Parallel-1",
     "refs/tags/ARCHITECT/parallel-1"],
)  # fmt: skip
def test_number_whose_branch_would_be_ambiguous_is_not_used(repo: Path, ref: str) -> None:
    git(repo, "update-ref", ref, "HEAD")
    assert numbers_in_refs(git(repo, "for-each-ref", "--format=%(refname)")) == {1}


def test_refs_with_similar_names_take_no_number(repo: Path) -> None:
    for ref in ("refs/remotes/origin/architect/parallel-1", "refs/notes/architect/parallel-2",
                "refs/tags/x/architect/parallel-3", "refs/heads/architect/parallel-x"):  # fmt: skip
        git(repo, "update-ref", ref, "HEAD")
    assert numbers_in_refs(git(repo, "for-each-ref", "--format=%(refname)")) == frozenset()


@pytest.mark.parametrize("ref", AMBIGUOUS)
def test_typed_name_is_the_branch_for_git(repo: Path, ref: str) -> None:
    git(repo, "branch", "architect/parallel-1")
    assert branch_to_type(Repository(repo), "architect/parallel-1") == "architect/parallel-1"

    other = git(repo, "commit-tree", "HEAD^{tree}", "-m", "other")
    git(repo, "update-ref", ref, other)
    name = branch_to_type(Repository(repo), "architect/parallel-1")

    said = subprocess.run(
        ["git", "rev-parse", name], cwd=repo, capture_output=True, text=True, check=True
    )
    assert (said.stdout.strip(), said.stderr) == (git(repo, "rev-parse", "HEAD"), "")


def test_tag_made_while_a_worker_runs_changes_nothing(
    repo: Path, local_engine: LocalEngine
) -> None:
    """No git command of ours takes the tag for the worker's branch."""
    tag = f"env -i PATH=$PATH git -C {repo} tag architect/parallel-1 HEAD~1"
    result = shell_run(repo, local_engine, f"{tag}; echo new > new.txt").results[0]

    assert (result.status, result.files_modified) == ("success", ["new.txt"])
    assert git(repo, "show", "refs/heads/architect/parallel-1:new.txt") == "new"
    assert git(repo, "rev-parse", "refs/tags/architect/parallel-1") == git(
        repo, "rev-parse", "HEAD~1"
    )
