"""Merge the commits of several tasks, for a task that depends on all of them.

Git merges in a quarantine: a separate repository without the user's settings (`merge_tree`). A
merge must obey the rules for a worker's own commits; otherwise none of its objects is imported.
"""

import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import fsdecode
from pathlib import Path

from orchestrator.base.errors import (
    GitCommandError,
    OrchestratorError,
    OutputTooLongError,
    RepositoryError,
)
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.commits.merge_tree import merge_commits, quarantine, require_git
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.failures import disk_full
from orchestrator.repository.incoming.packed_work import HarvestRefusedError
from orchestrator.repository.incoming.quarantine import check_trees
from orchestrator.repository.incoming.sealed_commits import (
    check_names,
    import_commits,
    signature,
    write_commit,
)
from orchestrator.repository.repository import Repository

MERGE_TIMEOUT = 120.0
"""Maximum number of seconds for all merges that one task needs."""
MOST_FILES = 20
"""Maximum number of conflicting files that an error message names."""
_MOST_NAMES = 5
"""Maximum number of tasks that the first line of a merge commit's message names."""


@dataclass(frozen=True)
class Tip:
    """The last commit of one task."""

    task: str
    commit: str


class MergeConflict(OrchestratorError):
    """The commits of some tasks cannot be merged; nothing was imported."""


def check_git() -> None:
    """Check that the installed git can merge without a checkout.

    Raises:
        ConfigError: Git is too old.
    """
    require_git(
        "for tasks that depend on several others, whose commits must be merged",
        "let each task depend on at most one other task",
    )


def integrate(
    repository: Repository, base: str, tips: Sequence[Tip], *, when: datetime, scratch: Path
) -> str:
    """Merge the commits that a task starts from, in their order, and return the result.

    The result is a commit of the user's or a task's if nothing must be merged, else a merge commit.
    Equal arguments give an equal commit. No ref moves, and no file of the user is touched.

    Args:
        repository: The user's repository, which receives the new objects.
        base: The run's base commit; all tips descend from it.
        tips: The resulting commits of the tasks that this task depends on.
        when: Date of the merge commit.
        scratch: Temporary directory to create and remove.

    Raises:
        MergeConflict: The commits cannot be merged.
        ConfigError: The installed git is too old.
        RepositoryError: A tip does not descend from the base, or git failed.
        OSError: The disk is full.
    """
    tips = _independent(repository, base, tips)
    if len(tips) < 2:
        return tips[0].commit if tips else base
    check_git()
    with quarantine(repository, scratch) as git:
        merge = _Merge(repository, git, base, when)
        commit = merge.all_of(tips)
        merge.hand_in(commit, tips, scratch / "git")
    return commit


def _independent(repository: Repository, base: str, tips: Sequence[Tip]) -> list[Tip]:
    """Return the commits that neither the base nor another of the commits contains."""
    by_commit = {tip.commit: tip for tip in reversed(tips)}
    commits = [base, *(tip.commit for tip in tips)]
    found = repository.git.text("merge-base", "--independent", *commits).split()
    kept = [tip for tip in tips if tip.commit in found and by_commit[tip.commit] is tip]
    kept = [tip for tip in kept if tip.commit != base]
    for tip in kept if not _all_reach(repository, base, kept) else ():
        # protection: unrelated-histories-are-refused
        if not repository.git.succeeds("merge-base", "--is-ancestor", base, tip.commit):
            raise RepositoryError(
                f"the commit of `{one_line(tip.task)}` ({tip.commit[:12]}) has no "
                f"history in common with the run's base ({base[:12]})",
                key="history.unrelated",
                hint="if the repository is a shallow clone, run `git fetch --unshallow`",
            )
    return kept


def _all_reach(repository: Repository, base: str, tips: Sequence[Tip]) -> bool:
    commits = (tip.commit for tip in tips)
    try:
        return repository.git.text("merge-base", "--octopus", base, *commits) == base
    except GitCommandError as error:
        if error.returncode != 1:
            raise
        return False


class _Merge:
    """Merges commits in a quarantine, a separate repository."""

    def __init__(self, repository: Repository, git: Git, base: str, when: datetime) -> None:
        self._repository = repository
        self._git = git
        self._base = base
        self._signed = signature(repository, when)
        self._deadline = time.monotonic() + MERGE_TIMEOUT

    def all_of(self, tips: Sequence[Tip]) -> str:
        """Return a commit with all tips as its parents, merged one after the other.

        Raises:
            MergeConflict: A tip cannot be added.
        """
        merged, tree = tips[0].commit, ""
        for number, tip in enumerate(tips[1:], start=1):
            before = tips[:number]
            try:
                # protection: merge-has-timeout
                timeout = max(0.1, self._deadline - time.monotonic())
                result = merge_commits(self._git, merged, tip.commit, timeout=timeout)
            except OutputTooLongError as error:
                raise _refusal(tip, before, error.message) from error
            except GitCommandError as error:
                if error.returncode == -signal.SIGKILL:
                    slow = f"the merge took longer than {MERGE_TIMEOUT:.0f} s"
                    raise _refusal(tip, before, slow) from error
                raise _of_git(error, tip, before) from error
            if result.paths:
                # protection: number-of-names-in-messages-limited
                first, rest = result.paths[:MOST_FILES], len(result.paths) - MOST_FILES
                # protection: names-in-messages-are-sanitised
                where = (
                    ", ".join(f"`{one_line(fsdecode(path))}`" for path in first) or "the same files"
                )
                more = f" and {rest} more" if rest > 0 else ""
                both = _both(tip, self._who_touched(first, before))
                raise MergeConflict(
                    f"{both} cannot be merged: both changed {where}{more}", key="merge.conflict"
                )
            tree = result.tree
            if number < len(tips) - 1:
                # An intermediate commit for the next merge; it does not become part of the history.
                merged = self._commit(tree, [merged, tip.commit], b"between")
        return self._commit(tree, [tip.commit for tip in tips], _message(tips))

    def _commit(self, tree: str, parents: Iterable[str], message: bytes) -> str:
        return write_commit(self._git, tree, parents, message, signed=self._signed)

    def _who_touched(self, paths: Sequence[bytes], before: Sequence[Tip]) -> Sequence[Tip]:
        """Return the tasks that last changed the given paths; all tasks if none changed any."""
        diff = ("diff-tree", "-r", "--quiet", "--no-renames", "--ignore-submodules=none")
        open_paths, found = {fsdecode(path) for path in paths}, []
        for tip in reversed(before):
            commits = (self._base, tip.commit)
            touched = {
                path
                for path in open_paths
                if not self._git.succeeds(*diff, *commits, "--", f":(top,literal){path}")
            }
            if touched:
                found.append(tip)
                open_paths -= touched
            if not open_paths:
                break
        return found[::-1] or before

    def hand_in(self, commit: str, tips: Sequence[Tip], git_dir: Path) -> None:
        """Check a merge by the rules for workers' commits, and import its objects."""
        last, before = tips[-1], tips[:-1]
        merged = [self._base, *(tip.commit for tip in tips)]
        try:
            # protection: merge-is-checked-like-harvest
            check_trees(self._git, base=self._base, tip=commit, repository=self._repository)
            # protection: names-that-differ-only-in-letter-case-are-refused
            check_names(self._git, commit, merged)
            import_commits(self._repository, self._git, git_dir, commit, merged[1:])
        except (HarvestRefusedError, OutputTooLongError) as error:
            raise _refusal(last, before, error.message) from error
        except GitCommandError as error:
            raise _of_git(error, last, before) from error


def _message(tips: Sequence[Tip]) -> bytes:
    names = [f"`{one_line(tip.task)}`" for tip in tips]
    if len(names) <= _MOST_NAMES:
        return f"architect: merge of {', '.join(names[:-1])} and {names[-1]}\n".encode()
    listed = "\n".join(f"- {name}" for name in names)
    return f"architect: merge of {len(names)} tasks\n\n{listed}\n".encode()


def _both(tip: Tip, others: Sequence[Tip]) -> str:
    names = [f"`{one_line(other.task)}`" for other in others[:_MOST_NAMES]]
    more = [f"{len(others) - len(names)} more"] if len(others) > len(names) else []
    return f"`{one_line(tip.task)}` and the work of {', '.join([*names, *more])}"


def _refusal(tip: Tip, before: Sequence[Tip], why: str) -> MergeConflict:
    return MergeConflict(
        f"{_both(tip, before)} cannot be merged: {one_line(why)}", key="merge.conflict"
    )


def _of_git(error: GitCommandError, tip: Tip, before: Sequence[Tip]) -> Exception:
    """Return the error to raise for a failed git command: OSError if the disk is full.

    Any other failure becomes a MergeConflict.
    """
    return disk_full(error.stderr) or _refusal(tip, before, error.message)
