"""Move the user's branch and its checkout to a merged commit; complete interrupted moves."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from shlex import quote

from orchestrator.base.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.base.files.lock_file import take_lock
from orchestrator.base.results import Form
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.commits.merge_tree import require_git
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import RunBranches
from orchestrator.review.landing.checkout import bring_forward, check_files, is_at
from orchestrator.review.landing.merged import Merged
from orchestrator.review.landing.target import NotFitError, Target, check_fit, find_target
from orchestrator.state.landing_record import (
    Landed,
    UnderWay,
    drop_record,
    forget_under_way,
    landings,
    note_under_way,
    read_under_way,
    write_record,
)

_REFUSED = re.compile(r"Cannot merge|overwritten by|would lose|Unable to create '[^']*\.lock'")
"""Messages of git when it refuses to update files, before it writes any of them."""

_SHORT = 12
_PLAIN = "--binary --no-color --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/"
"""Options of `git diff` with which `git apply` understands the output, whatever is configured."""


@contextmanager
def only_one(repository: Repository) -> Iterator[None]:
    """Hold the lock that allows only one `orchestrator merge` in this repository.

    Raises:
        ConfigError: Another process holds the lock.
    """
    lock = take_lock(repository.state_dir / "landing.lock")
    if lock is None:
        raise ConfigError(
            "another `orchestrator merge` is running in this repository",
            key="merge.locked",
            hint="wait for the end of the other merge",
        )
    with lock:
        yield


def record_of(merged: Merged, run: RunBranches) -> Landed:
    """Return the checkpoint of a merge."""
    tips = {branch.worker_id: branch.commit for branch in run.branches}
    return Landed(
        run_id=merged.run_id,
        form=merged.form,
        branch=merged.target,
        before=merged.before,
        after=merged.after,
        workers=merged.landed,
        commits=tuple(tips[number] for number in merged.landed),
    )


def check(repository: Repository, target: Target, form: Form) -> None:
    """Check that the user's branch can be changed, before anything is merged.

    Raises:
        ConfigError: `form` is `apply`, and the branch is not checked out.
        NotFitError: The target cannot be changed now.
    """
    if form == "apply" and target.checkout is None:
        raise ConfigError(
            f"`{target.branch}` is not checked out: `--as apply` changes files only",
            key="branch.not-checked-out",
            hint="check the branch out, or omit `--into`",
        )
    check_fit(repository, target)


def check_ahead(repository: Repository) -> None:
    """Check, before a run whose work will be merged, that the user's branch can be changed.

    Raises:
        ConfigError: No branch is checked out, or git is too old to merge without a checkout.
        NotFitError: The branch or its checkout cannot be changed now.
    """
    require_git("to merge branches", "merge the branches with `git merge`")
    check_fit(repository, find_target(repository, None))


def land(repository: Repository, target: Target, landed: Landed) -> None:
    """Move the user's branch to a merged commit, and update its checkout.

    Raises:
        NotFitError: The branch has moved, or its checkout has changes that prevent the update;
            nothing was changed.
    """
    with repository.lock():
        _check_all(repository, target, old=landed.before, new=landed.after)
        landed = write_record(repository, landed)
        _change(repository, target, UnderWay(kind="land", landed=landed, checkout=_path(target)))


def undo(repository: Repository, *, into: str | None, run_id: str | None) -> Landed:
    """Undo the latest merge into a branch, if the branch has not moved since.

    Args:
        repository: The repository.
        into: The branch. Default: the branch that is checked out.
        run_id: Only a merge of this run.

    Raises:
        ConfigError: There is no such merge.
        NotFitError: The branch or its files changed since; nothing was changed.
    """
    with only_one(repository):
        change = complete(repository)
        if change is not None and change.kind == "undo":
            return change.landed
        target = find_target(repository, into)
        landed = _latest(repository, target, run_id)
        # protection: undo-only-of-branch-that-has-not-moved-since
        if not landed.is_undone_from(target.commit):
            raise _cannot_undo(repository, target, landed)
        change = UnderWay(kind="undo", landed=landed, checkout=_path(target))
        with repository.lock():
            _check_all(repository, target, old=landed.after, new=landed.before)
            _change(repository, target, change)
        return landed


def _latest(repository: Repository, target: Target, run_id: str | None) -> Landed:
    """Return the merge to undo: the one that made the branch's commit, or else the newest."""
    found = landings(repository, target.branch, run_id)
    # protection: merges-that-never-happened-are-not-undone
    while begun := [landed for landed in found if landed.moves and landed.before == target.commit]:
        # The process died before the branch moved: these landings never happened.
        with repository.lock():
            for landed in begun:
                drop_record(repository, landed)
        found = landings(repository, target.branch, run_id)
    if not found:
        of_run = "" if run_id is None else f"of run {run_id} "
        raise ConfigError(
            f"there is no record of a merge {of_run}into `{target.branch}`",
            key="merge.unrecorded",
            hint="`git reflog` lists earlier commits of a branch",
        )
    return next((landed for landed in found if landed.is_undone_from(target.commit)), found[0])


def _cannot_undo(repository: Repository, target: Target, landed: Landed) -> NotFitError:
    workers = ", ".join(f"worker {number}" for number in landed.workers)
    cannot = f"cannot undo the merge of {workers}: `{target.branch}`"
    merged = landed.after if landed.moves else landed.before
    if not repository.git.succeeds("merge-base", "--is-ancestor", merged, target.commit):
        return NotFitError(
            f"{cannot} does not contain that merge any more",
            key="merge.gone",
            hint=f"`git reflog {target.branch}` lists earlier commits of the branch",
        )
    # A command that removes the merged changes, and keeps the commits on top of them.
    git = "git" if target.checkout is None else f"git -C {quote(str(target.checkout.path))}"
    commits = f"{landed.before[:_SHORT]}..{landed.after[:_SHORT]}"
    revert = f"{git} revert {commits}"
    if landed.form == "apply":
        revert = f"{git} diff {_PLAIN} {commits} | {git} apply --reverse"
    elif landed.form == "merge":
        revert = f"{git} revert -m 1 $({git} rev-list --first-parent {commits})"
    command = f"`{revert}` takes the merged changes back"
    return NotFitError(
        f"{cannot} has new commits since that merge",
        key="merge.superseded",
        hint=command if target.checkout else f"check `{target.branch}` out, then {command}",
    )


def _path(target: Target) -> str | None:
    return str(target.checkout.path) if target.checkout else None


def _check_all(repository: Repository, target: Target, *, old: str, new: str) -> None:
    check_fit(repository, target)
    if target.checkout is not None:
        check_files(repository, target.checkout, old=old, new=new)


def _change(repository: Repository, target: Target, change: UnderWay) -> None:
    """Move the branch and update its files, or leave both unchanged."""
    # protection: target-change-is-recorded-before-it-begins
    note_under_way(repository, change)
    if change.landed.moves:
        try:
            _move(repository, target.ref, change)
        except GitCommandError as error:
            forget_under_way(repository)
            raise NotFitError(
                f"`{target.branch}` could not be moved: nothing was changed "
                f"({one_line(error.stderr)})",
                key="target.not-moved",
                hint="run the command again",
            ) from error
    if target.checkout is not None:
        _bring_files(repository, target, change)
    if change.kind == "undo":
        drop_record(repository, change.landed)
    forget_under_way(repository)


def _move(repository: Repository, ref: str, change: UnderWay) -> None:
    why = f"orchestrator merge: {change.kind} run {change.landed.run_id}"
    # protection: target-branch-moves-only-from-its-expected-commit
    repository.git.run("update-ref", "-m", why, ref, change.new, change.old)


def _bring_files(repository: Repository, target: Target, change: UnderWay) -> None:
    assert target.checkout is not None  # noqa: S101
    try:
        bring_forward(repository, target.checkout, old=change.old, new=change.new)
    except RepositoryError as error:
        if isinstance(error, GitCommandError) and _REFUSED.search(error.stderr):
            # Git refused before it wrote any file: a file changed since it was checked.
            # On a full disk, the branch cannot move back: its files are written later.
            with suppress(GitCommandError):
                # protection: target-branch-moves-back-if-its-files-cannot-be-written
                if change.landed.moves:
                    why = "orchestrator merge: refused"
                    repository.git.run("update-ref", "-m", why, target.ref, change.old, change.new)
                forget_under_way(repository)
                raise NotFitError(
                    f"files of `{target.branch}` were edited at the same time, so the command "
                    f"changed nothing ({one_line(error.stderr)})",
                    key="target.edited",
                    hint="run the command again",
                ) from error
        raise RepositoryError(
            f"`{target.branch}` has its new commit, but not all files in "
            f"{target.checkout.path} could be written: {one_line(error.message)}",
            key="checkout.incomplete",
            hint="remove the cause, then run `orchestrator merge`, which writes the other files",
        ) from error


def complete(repository: Repository) -> UnderWay | None:
    """Complete a move of the user's branch that a dead process began: update the checkout's files.

    Returns:
        The completed change; None if no change was incomplete, or if the branch never moved.
    """
    with repository.lock():
        change = read_under_way(repository)
        if change is None:
            return None
        landed = change.landed
        at = repository.commit_of(f"refs/heads/{landed.branch}")
        moved = at == (change.new if landed.moves else landed.before)
        checkout = find_target(repository, landed.branch).checkout if moved else None
        if checkout is not None and str(checkout.path) == change.checkout:
            # protection: target-change-of-dead-process-is-completed
            _complete_files(repository, checkout, change)
        if moved and change.kind == "undo":
            drop_record(repository, landed)
        forget_under_way(repository)
        return change if moved else None


def _complete_files(repository: Repository, checkout: Worktree, change: UnderWay) -> None:
    if is_at(repository, checkout, change.new):
        return
    try:
        bring_forward(repository, checkout, old=change.old, new=change.new, again=True)
    except GitCommandError as error:
        raise NotFitError(
            f"an earlier `orchestrator merge` died before all files in {checkout.path} "
            f"were written, and the files changed since: {one_line(error.stderr)}",
            key="checkout.inconsistent",
            hint=f"`git checkout HEAD -- FILE` restores the merged version of a file; "
            f"`git diff {change.old[:12]}` compares the files with the commit before that merge",
        ) from error
