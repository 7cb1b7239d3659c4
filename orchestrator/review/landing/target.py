"""The user's branch into which workers' branches are merged, and whether it can be changed now."""

from dataclasses import dataclass

from orchestrator.base.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.in_progress import is_bound, operation_in
from orchestrator.repository.checkouts.worktree_list import all_worktrees, list_linked_worktrees
from orchestrator.repository.repository import BRANCHES, Repository
from orchestrator.review.landing.merged import Merged

_HEADS = "refs/heads/"


class NotFitError(RepositoryError):
    """The branch or its checkout cannot be changed now; nothing was changed."""


@dataclass(frozen=True)
class Target:
    """The user's branch into which workers' branches are merged."""

    branch: str
    commit: str
    checkout: Worktree | None
    """The worktree in which the branch is checked out; None if it is not checked out."""

    @property
    def ref(self) -> str:
        """Return the full name of the branch."""
        return f"{_HEADS}{self.branch}"


def find_target(repository: Repository, into: str | None) -> Target:
    """Return the branch named `into`, or else the branch that is checked out.

    Raises:
        ConfigError: There is no such branch, or it belongs to a worker.
        NotFitError: The branch is checked out more than once.
    """
    name = current_branch(repository) if into is None else into
    wanted = f"{_HEADS}{name.removeprefix(_HEADS)}"
    ref = _symbolic_branches(repository).get(wanted, wanted)
    branch = ref.removeprefix(_HEADS)
    if not ref.startswith(_HEADS):
        raise ConfigError(
            f"`{one_line(wanted)}` leads to `{one_line(ref)}`: no branch", key="branch.symbolic"
        )
    # protection: merge-into-branches-of-workers-is-refused
    if ref.startswith(BRANCHES) or ref in repository.worker_branches():
        raise ConfigError(
            f"`{branch}` cannot be merged into: it is the branch of a worker",
            key="branch.of-worker",
            hint="name a branch of your own",
        )
    commit = repository.commit_of(ref)
    if commit is None:
        is_possible = branch != "HEAD" and branch[:1] != "-"
        hint = "`git branch` lists the branches"
        if is_possible and repository.git.succeeds("check-ref-format", ref):
            hint = f"`git branch {branch}` creates the branch"
        raise ConfigError(
            f"there is no branch `{one_line(branch)}`", key="branch.unknown", hint=hint
        )
    return Target(branch, commit, _checkout(repository, ref))


def current_branch(repository: Repository) -> str:
    """Return the name of the branch that is checked out, without `refs/heads/`.

    Raises:
        ConfigError: HEAD is detached.
    """
    try:
        return repository.git.text("symbolic-ref", "--quiet", "HEAD").removeprefix(_HEADS)
    except GitCommandError as error:
        raise ConfigError(
            "no branch is checked out",
            key="branch.none-checked-out",
            hint="check a branch out with `git switch BRANCH`, or merge later with `orchestrator "
            "merge --into BRANCH`",
        ) from error


def _checkout(repository: Repository, ref: str) -> Worktree | None:
    """Return the worktree in which a branch is checked out; None if it is not checked out.

    Raises:
        NotFitError: The branch is checked out more than once, or where no files can be updated.
    """
    names = {ref, *(name for name, led in _symbolic_branches(repository).items() if led == ref)}
    found = [worktree for worktree in all_worktrees(repository) if worktree.head in names]
    branch = ref.removeprefix(_HEADS)
    for worktree in found:
        # protection: target-checkout-whose-files-cannot-be-updated
        if not worktree.is_present:
            if worktree.path is None:
                raise NotFitError(
                    f"`{branch}` is checked out in the main worktree of {worktree.git_dir}, and "
                    "git does not record where that is: nothing was changed",
                    key="target.worktree-missing",
                    hint="run the command in the main worktree",
                )
            raise NotFitError(
                f"`{branch}` is checked out in the worktree {worktree.path}, which is not there: "
                "nothing was changed",
                key="target.worktree-missing",
                hint="`git worktree prune` forgets a worktree that was deleted, `git worktree "
                "repair PATH` finds one that was moved",
            )
    checkouts = [
        Worktree(worktree.path, branch, worktree.git_dir) for worktree in found if worktree.path
    ]
    if len(checkouts) > 1:
        places = " and ".join(str(checkout.path) for checkout in checkouts[:2])
        raise NotFitError(
            f"`{branch}` is checked out more than once: in {places}",
            key="target.many-checkouts",
            hint="check out another branch in one of these worktrees",
        )
    return checkouts[0] if checkouts else None


def _symbolic_branches(repository: Repository) -> dict[str, str]:
    """Return the refs to which branches lead that are symbolic refs, by the branches' names."""
    listed = repository.git.text("for-each-ref", "--format=%(refname)%00%(symref)", _HEADS)
    pairs = (line.split("\0") for line in listed.split("\n") if line)
    return {name: led for name, led in pairs if led}


def check_fit(repository: Repository, target: Target) -> None:
    """Check that the branch has not moved, and that no git operation is in progress.

    Raises:
        NotFitError: The branch or its checkout cannot be changed now.
    """
    # protection: target-branch-has-not-moved-since-merge-began
    if repository.commit_of(target.ref) != target.commit:
        raise NotFitError(
            f"another command changed `{target.branch}` meanwhile: nothing was changed",
            key="target.changed",
            hint="run the command again",
        )
    # protection: target-checkout-has-not-changed-since-merge-began
    if target.checkout != _checkout(repository, target.ref):
        raise NotFitError(
            f"another command changed which worktree has `{target.branch}` checked out: "
            "nothing was changed",
            key="target.changed",
            hint="run the command again",
        )
    linked = (worktree.git_dir for worktree in list_linked_worktrees(repository.common_dir))
    if any(is_bound(git_dir, target.ref) for git_dir in (repository.common_dir, *linked)):
        raise NotFitError(
            f"a rebase or bisection of `{target.branch}` is under way: nothing was changed",
            key="operation.in-progress",
            hint="finish the rebase or bisection first",
        )
    if target.checkout is None:
        return
    git_dir, path = target.checkout.git_dir, target.checkout.path
    operation = operation_in(git_dir)
    if operation is not None:
        raise NotFitError(
            f"{operation} is under way in {path}: nothing was changed",
            key="operation.in-progress",
            hint="finish or abort the operation first: see `git status`",
        )
    # protection: target-no-other-git-command-changes-index
    if (git_dir / "index.lock").exists():
        raise NotFitError(
            f"another git command is changing the index of {path}: nothing was changed",
            key="git.locked",
            hint=f"wait for that command's end; if it died, remove {git_dir / 'index.lock'}",
        )


def check_previewed(merged: Merged, previewed: Merged | None) -> None:
    """Check that a merge does what its dry run did, before anything is changed.

    Args:
        merged: The merge.
        previewed: The dry run; None if any result is accepted.

    Raises:
        NotFitError: The target has moved, or other workers or commits would be merged.
    """
    if previewed is None:
        return
    # protection: target-has-not-moved
    if (merged.target, merged.before) != (previewed.target, previewed.before):
        raise NotFitError(
            f"`{previewed.target}` has moved since the preview: nothing was changed",
            key="preview.outdated",
            hint="preview the merge again",
        )
    # protection: previewed-workers-are-merged
    if merged.landed != previewed.landed:
        raise NotFitError(
            "other workers than in the preview would be merged: nothing was changed",
            key="preview.outdated",
            hint="preview the merge again",
        )
    if merged.after != previewed.after:
        raise NotFitError(
            "other commits than in the preview would be merged: nothing was changed",
            key="preview.outdated",
            hint="preview the merge again",
        )
