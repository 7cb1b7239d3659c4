"""Measure the disk usage of a worker's directories, with limits and without following links."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.files.walk import Walk

_BLOCK = 512


@dataclass(frozen=True)
class DiskUse:
    """Disk usage of a group of directories."""

    size: int
    """Number of bytes on disk; of a sparse file, only the blocks that it occupies count."""
    files: int
    """Number of files, directories and links."""
    hidden: int
    """Number of directories that could not be read, for example because the worker removed
    permissions.
    """
    late: bool = False
    """Whether counting stopped because of the time limit."""


def disk_use(roots: Iterable[Path], *, most_files: int, seconds: float = math.inf) -> DiskUse:
    """Measure directories that a worker may be changing at the same time.

    Args:
        roots: Directories to measure; a root itself is not counted.
        most_files: Number of files above which counting stops. The returned number of files is then
            too small, but still greater than `most_files`.
        seconds: Time after which counting stops. The result is then too small, and has `late` set.
    """
    size = files = hidden = 0
    until = time.monotonic() + seconds
    late = False
    linked: set[int] = set()
    for root in roots:
        # protection: time-of-measurements-limited
        walk = Walk(root, most=most_files + 1 - files, until=until)
        for _, info in walk:
            # protection: hard-links-count-once
            if info.st_nlink == 1 or info.st_ino not in linked:
                size += info.st_blocks * _BLOCK
            if info.st_nlink > 1:
                linked.add(info.st_ino)
        files += walk.seen
        hidden += walk.hidden
        late = late or walk.late
        if late or files > most_files:
            break
    return DiskUse(size=size, files=files, hidden=hidden, late=late)
