"""Make the files of a fresh checkout older than its index, so that git need not read them again."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.repository.git.command import Git
from orchestrator.repository.git.defaults import SIZE_AND_TIME
from orchestrator.repository.repository import Repository

_SECONDS_PER_FILE = 10e-6
_SECONDS_PER_BYTE = 2e-9
"""Time in which git opens and reads a file again, and compares it with its object."""
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
    """Set back the times of the files that are not older than the index.

    Nothing is set back if the wait for the next second is shorter: git reads such files again.

    Returns:
        None if all files are older than the index now. Otherwise the time, in seconds since the
        epoch, from which a change of the index makes it younger than all files.
    """
    # Not the present second: files and index may both be of the second before.
    moment = int(index.stat().st_mtime)
    found = _files_since(tree, moment)
    young = {path: info for path, info in found if not path.endswith("/.git")}
    over = int(max((info.st_mtime for info in young.values()), default=0)) + 1 + _CLOCK_TICK
    size = sum(info.st_size for info in young.values())
    if young and len(young) * _SECONDS_PER_FILE + size * _SECONDS_PER_BYTE > over - time.time():
        return over
    for path in young:
        os.utime(path, (moment - 1, moment - 1), follow_symlinks=False)
    if young:
        config = {**repository.comparing(), **SIZE_AND_TIME}
        git = Git(repository.git_dir, work_tree=tree, index=index, config=config)
        # Without `-q`, git reports that the user's git holds the lock, and the caller waits.
        git.succeeds("update-index", "--refresh")
    return None


def make_younger(index: Path, over: float) -> None:
    """Wait for the time that `make_older` returned, and give the index the present time."""
    time.sleep(max(over - time.time(), 0))
    # No task has started, so no file has changed since it was written.
    os.utime(index)


def _files_since(tree: Path, moment: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and metadata of the files in a tree that are not older than `moment`."""
    for folder, _, files in os.walk(tree):
        # No file is newer than the last change of the directory in which it was created.
        if os.stat(folder).st_mtime >= moment:  # noqa: PTH116  # 20,000 files
            for name in files:
                path = os.path.join(folder, name)  # noqa: PTH118
                info = os.lstat(path)
                if info.st_mtime >= moment:
                    yield path, info
