"""The result of a merge: what `orchestrator merge --json` prints."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.base.results import Form

Problem = Literal["conflict", "merges", "refused"]
"""Why a branch cannot be added: a conflict, a rebase of merge commits, or a broken rule."""


class LeftWorker(BaseModel):
    """A worker whose work was not merged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    reason: (
        Problem
        | Literal[
            "failed",
            "excluded",
            "unfiltered",
            "stopped",
            "checks_failed",
            "no_verdict",
            "needs_review",
        ]
    )
    """Why the work was not merged: `conflict`, `merges` (a rebase of merge commits), `refused` (it
    breaks a rule for commits), `failed` (the worker did not succeed and was not named), `excluded`
    (a judgement excludes its work or work that it contains, and not all these workers were
    named), `unfiltered` (a required filter of
    git did not run for its files), `stopped` (because of another
    worker's conflict), `checks_failed` (with `--queue`), `no_verdict` (the checks gave no
    answer), or `needs_review` (with `--queue`: its new code touches the test runner, and it was not
    named).
    """
    message: str
    files: tuple[str, ...] = ()
    """The conflicting files, at most 1000."""
    others: tuple[int, ...] = ()
    """Merged workers that changed the conflicting files too."""
    passes: str | None = None
    """For `checks_failed`: the commit without the worker, on which the checks pass."""
    fails: str | None = None
    """For `checks_failed`: the commit with the worker, on which the checks fail."""
    refused: tuple[str, ...] = ()
    """Why each attempt of an agent to resolve the conflict was not accepted."""


class SentCommit(BaseModel):
    """A commit of a worker in the history that the user pushes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str
    author: str
    """Name and e-mail address."""
    subject: str
    effects: tuple[str, ...]
    """What a forge may do because of the message or the author, such as `mentions somebody`,
    `closes an issue`, `skips checks`, `has a trailer`, or `is by another author`.
    """


class ResolvedConflict(BaseModel):
    """A conflict of a merged worker that an agent resolved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    run_id: str
    """Id of the agent's run."""
    files: tuple[str, ...]
    """The files that conflicted, at most 1000."""


class Merged(BaseModel):
    """The output of `orchestrator merge --json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    form: Form
    target: str
    """The branch into which workers' branches were merged."""
    before: str
    after: str
    """The commit that the branch points at now; with `apply`, a commit of the applied files."""
    dry_run: bool
    """Whether nothing was changed, and `after` was only computed."""
    landed: tuple[int, ...] = ()
    """Workers whose work was merged, in this order."""
    contained: tuple[int, ...] = ()
    """Workers whose commits the target branch already contained, or that committed nothing. Workers
    that did not succeed and were not named are in `left` instead.
    """
    left: tuple[LeftWorker, ...] = ()
    resolved: tuple[ResolvedConflict, ...] = ()
    """Merged workers whose conflicts an agent resolved."""
    kept: tuple[SentCommit, ...] = ()
    """The workers' own commits that stay in the history, if a forge would act on their messages or
    authors once they are pushed; of the newest 1000, newest first.
    """
    given_conflicts: int | None = None
    """With `--order best`: number of workers that conflict in the given order; otherwise null."""
