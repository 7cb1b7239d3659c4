"""Decide whether a judgement keeps a branch from being merged: every way to a merge asks here."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git.command import records
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, RunBranches
from orchestrator.state.judgements import ExcludedCommit
from orchestrator.state.landing_record import commits_after


@dataclass(frozen=True)
class Exclusion:
    """Why a judgement keeps a branch from being merged."""

    said: str
    """The reason in words."""
    way: str
    """What a person does who wants the work nevertheless."""


def exclusion(
    repository: Repository,
    run: RunBranches,
    branch: Branch,
    onto: str,
    *,
    insisted: Collection[int] = (),
) -> Exclusion | None:
    """Return why a judgement keeps a branch out of the commit `onto`; None if none does.

    A branch that was built on excluded work would bring that work along.

    Args:
        repository: The user's repository.
        run: The run of the branch.
        branch: The branch.
        onto: The commit that the branch is to be merged into.
        insisted: Numbers of the run's workers whose work is wanted although it is excluded.
    """
    for excluded in _find_excluded(repository, run, branch, onto):
        number, why = excluded.worker_id, one_line(excluded.findings)
        if excluded.run_id != run.run_id:
            return Exclusion(
                f"the branch contains the work of worker {number} of run "
                f"{one_line(excluded.run_id)}, which the judgement excludes ({why})",
                f"after `orchestrator merge {one_line(excluded.run_id)} {number}` it can be merged",
            )
        # protection: excluded-worker-below-is-not-named
        if number in insisted:
            continue
        if number == branch.worker_id:
            return Exclusion(
                f"the judgement excludes the worker ({why})",
                f"`orchestrator pick {number}` merges it anyway",
            )
        return Exclusion(
            f"the branch contains the work of worker {number}, which the judgement excludes "
            f"({why})",
            f"`orchestrator merge {run.run_id} {number} {branch.worker_id}` merges both anyway",
        )
    return None


def _find_excluded(
    repository: Repository, run: RunBranches, branch: Branch, onto: str
) -> Iterator[ExcludedCommit]:
    """Yield the excluded commits that a branch has and `onto` lacks, newest first."""
    if not run.excluded:
        return
    git = repository.git.within(UNTRUSTED)
    # protection: branch-on-top-of-excluded-work-is-excluded-too
    with git.reading("rev-list", branch.commit, f"^{onto}") as listed:
        commits = [line.decode() for line in records(listed, b"\n")]
    for excluded in (run.excluded[commit] for commit in commits if commit in run.excluded):
        # A squash or a rebase added the work as other commits.
        others = commits_after(repository, excluded.run_id, excluded.worker_id, excluded.commit)
        if not any(git.succeeds("merge-base", "--is-ancestor", other, onto) for other in others):
            yield excluded
