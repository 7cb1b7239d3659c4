"""Make the files of a fresh checkout older than its index, so that git need not read them again."""

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from orchestrator.git.command import Git
from orchestrator.git.defaults import SIZE_AND_TIME
from orchestrator.git.repository import Repository

_FEW = 5_000
"""Number of files that git can read again in less time than the wait for the next second takes."""
_CLOCK_TICK = 0.02
"""Maximum number of seconds by which a file's time may be behind the clock."""


def settle(repository: Repository, tree: Path, index: Path) -> None:
    """Make all files of a checkout older than its index, by whole seconds.

    Git assumes that a file as new as the index may have changed unnoticed. Otherwise, the worker's
    first `git add` would read all files and write all their objects again.
    """
    over = make_older(repository, tree, index)
    if over is not None:
        make_younger(index, over)


def make_older(repository: Repository, tree: Path, index: Path) -> float | None:
    """Set back the times of the files that are not older than the index, unless they are many.

    Returns:
        None if all files are older than the index now. Otherwise the time, in seconds since the
        epoch, from which a change of the index makes it younger than all files.
    """
    # Not the present second: files and index may both be of the second before.
    moment = int(index.stat().st_mtime)
    found = (path for path in _files_since(tree, moment) if not path.endswith("/.git"))
    young = list(islice(found, _FEW + 1))
    if len(young) > _FEW:
        # Git would read every file whose time is set back; waiting for the next second is shorter.
        return int(time.time()) + 1 + _CLOCK_TICK
    for path in young:
        os.utime(path, (moment - 1, moment - 1), follow_symlinks=False)
    if young:
        config = {**repository.without_filters(), **SIZE_AND_TIME}
        git = Git(repository.git_dir, work_tree=tree, index=index, config=config)
        # Without `-q`, git reports that the user's git holds the lock, and the caller waits.
        git.succeeds("update-index", "--refresh")
    return None


def make_younger(index: Path, over: float) -> None:
    """Wait for the time that `make_older` returned, and give the index the present time."""
    time.sleep(max(over - time.time(), 0))
    # No task has started, so no file has changed since it was written.
    os.utime(index)


def _files_since(tree: Path, moment: int) -> Iterator[str]:
    """Yield the files in a tree that are not older than `moment`."""
    for folder, _, files in os.walk(tree):
        # No file is newer than the last change of the directory in which it was created.
        if os.stat(folder).st_mtime >= moment:  # noqa: PTH116  # 20,000 files
            paths = (os.path.join(folder, name) for name in files)  # noqa: PTH118
            yield from (path for path in paths if os.lstat(path).st_mtime >= moment)
