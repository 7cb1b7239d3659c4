"""Find git operations that a user has begun in a checkout and not finished."""

from pathlib import Path

from orchestrator.base.errors import RepositoryError
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.git_directory import read_line
from orchestrator.repository.repository import Repository

# protection: operations-in-progress
_OPERATIONS = {
    "MERGE_HEAD": "a merge",
    "rebase-merge": "a rebase",
    "rebase-apply/applying": "`git am`",
    "rebase-apply": "a rebase",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert of several commits",
}
"""Files and directories that git operations create in a git directory, with the name of the
operation.
"""
_BISECTION = "BISECT_LOG"
_BRANCHES = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""Files in a git directory that name the branch to which an operation, such as a rebase, returns.
"""
_MOVED_LATER = "rebase-merge/update-refs"
"""File that names the branches which `git rebase --update-refs` will move, each on every third
line.
"""
_SHOWN = 5


def operation_in(git_dir: Path) -> str | None:
    """Return the name of the operation that is in progress in a worktree; None if there is none.

    A bisection does not count: git allows merges and commits meanwhile.
    """
    found = (name for file, name in _OPERATIONS.items() if (git_dir / file).exists())
    return next(found, None)


def is_bound(git_dir: Path, ref: str) -> bool:
    """Return whether an operation in a worktree will return to a branch, or move it."""
    names = {read_line(git_dir / name) for name in _BRANCHES}
    # protection: target-no-rebase-in-another-worktree
    if names & {ref, ref.removeprefix("refs/heads/")}:
        return True
    moved = read_line(git_dir / _MOVED_LATER) or ""
    return ref in moved.split("\n")[::3]


def check_settled(repository: Repository) -> None:
    """Check that the files of the checkout are not a state in the middle of a git operation.

    Raises:
        RepositoryError: An operation is in progress, or conflicts are not resolved.
    """
    operation = operation_in(repository.git_dir)
    if operation is None and (repository.git_dir / _BISECTION).exists():
        operation = "a bisection"
    if operation is None:
        rows = repository.git.run("ls-files", "--unmerged", "-z").split(b"\0")
        names = (row.partition(b"\t")[2].decode(errors="replace") for row in rows if row)
        # protection: conflicts-without-operation-are-found
        paths = list(dict.fromkeys(names))
        shown = ", ".join(f"`{one_line(path)}`" for path in paths[:_SHOWN])
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        operation = f"the resolution of conflicts ({shown}{more})" if paths else None
    if operation is not None:
        raise RepositoryError(
            f"`--include-uncommitted`: {operation} is in progress in {repository.top}",
            key="operation.in-progress",
            hint="finish or abort it first: see `git status`",
        )
