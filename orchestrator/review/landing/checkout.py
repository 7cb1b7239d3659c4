"""Update the files of a checkout from one commit to another, or refuse before any file changes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.files.owner import own_place
from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.checkouts.checkout import CHECKOUT_TIMEOUT, Worktree
from orchestrator.repository.git.command import Git
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.target import NotFitError

_ROOM = 16 * 1024**2
"""Number of bytes that must stay free on the disk in addition to the new files."""
_SHOWN = 5


def check_files(repository: Repository, checkout: Worktree, *, old: str, new: str) -> None:
    """Check that the files of a checkout can be updated from one commit to another.

    Neither the files nor the index are changed.

    Raises:
        NotFitError: A file that differs has changes that are not committed, an untracked or ignored
            file is in the way, or the disk is too full.
    """
    with _index_copy(repository, checkout) as git:
        git.succeeds("update-index", "-q", "--refresh")
        try:
            # protection: target-uncommitted-changes-are-kept
            git.run("read-tree", "-n", "-m", "-u", old, new, timeout=CHECKOUT_TIMEOUT)
        except GitCommandError as error:
            raise NotFitError(
                f"the files in {checkout.path} cannot be updated: "
                f"{one_line(error.stderr.removeprefix('error: ') or error.message)}",
                key="checkout.blocked",
                hint="commit or move the named files, or use `git stash --include-untracked`",
            ) from error
        tracked = frozenset(git.run("ls-files", "-z").split(b"\0"))
    # The new object id and the path of each file that is added or changed.
    raw = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=d")
    fields = repository.git.run(*raw, old, new).split(b"\0")
    rows, paths = fields[:-1:2], fields[1::2]
    # protection: target-untracked-and-ignored-files-are-kept
    _check_untracked(checkout, paths, tracked)
    blobs = b"".join(row.split(b" ")[3] + b"\n" for row in rows)
    sizes = repository.git.run("cat-file", "--batch-check=%(objectsize)", stdin=blobs).split(b"\n")
    needed = sum(int(size) for size in sizes if size.isdigit()) + _ROOM
    state = os.statvfs(checkout.path)
    free = state.f_bavail * state.f_frsize
    # protection: target-disk-has-enough-free-space
    if free < needed:
        raise NotFitError(
            f"the disk of {checkout.path} is too full: {free} bytes are free, {needed} are needed",
            key="disk.insufficient",
            hint="free some space",
        )


@contextmanager
def _index_copy(repository: Repository, checkout: Worktree) -> Iterator[Git]:
    """Yield git with a copy of a checkout's index, for commands that would change the index."""
    # protection: target-index-is-unchanged-before-merge
    copy = repository.state_dir / f"index-{os.getpid()}"
    try:
        if (checkout.git_dir / "index").exists():
            shutil.copy2(checkout.git_dir / "index", copy)
        config = repository.comparing()
        yield Git(checkout.git_dir, work_tree=checkout.path, index=copy, config=config)
    except OSError as error:
        raise NotFitError(
            f"the index of {checkout.path} cannot be read: {error}", key="checkout.index-unreadable"
        ) from error
    finally:
        copy.unlink(missing_ok=True)


def _check_untracked(checkout: Worktree, paths: list[bytes], tracked: frozenset[bytes]) -> None:
    """Refuse to write where an untracked file is; git itself would overwrite ignored files.

    Raises:
        NotFitError: A file that is not tracked would be lost.
    """
    top = os.fsencode(checkout.path)
    lost = [path for path in paths if path not in tracked and _hides(top, path, tracked)]
    if lost:
        shown = ", ".join(f"`{one_line(os.fsdecode(path))}`" for path in lost[:_SHOWN])
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise NotFitError(
            f"untracked files in {checkout.path} would be overwritten: {shown}{more}",
            key="checkout.untracked-files",
            hint="move or remove the untracked files",
        )


def _hides(top: bytes, path: bytes, tracked: frozenset[bytes]) -> bool:
    """Return whether a new file would replace an untracked file or directory."""
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        place = b"/".join(parts[:end])
        full = os.path.join(top, place)  # noqa: PTH118 - paths of git may not be text
        if not os.path.lexists(full):
            return False
        if os.path.islink(full) or not os.path.isdir(full):  # noqa: PTH112, PTH114
            return place not in tracked
    return any(
        os.path.relpath(os.path.join(folder, name), top) not in tracked  # noqa: PTH118
        for folder, _, names in os.walk(os.path.join(top, path))  # noqa: PTH118
        for name in names
    )


def bring_forward(
    repository: Repository, checkout: Worktree, *, old: str, new: str, again: bool = False
) -> None:
    """Update the files and the index of a checkout from `old` to `new`.

    No filter runs, because a worker may have written the filter's program: files are as committed.
    `again` must be set if a process that died may have begun the same update.

    Raises:
        GitCommandError: A file has changes that are not committed; nothing was overwritten.
        RepositoryError: Git was killed after `CHECKOUT_TIMEOUT`.
    """
    checkout.refresh(repository)
    checkout.update(repository, base=old, tip=new, again=again)


def is_at(repository: Repository, checkout: Worktree, commit: str) -> bool:
    """Return whether the index has the files of a commit; False also if git cannot tell."""
    git = Git(checkout.git_dir, work_tree=checkout.path, config=repository.comparing())
    try:
        return git.succeeds("diff-index", "--cached", "--quiet", commit)
    except RepositoryError:
        return False


def scratch(repository: Repository) -> Path:
    """Return the path of the temporary repository in which branches are merged."""
    return own_place(repository.state_dir, "landing")
