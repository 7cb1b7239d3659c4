"""Measure what a worker has written: bytes and files, following no link, bounded."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.files.walk import Walk

_BLOCK = 512


@dataclass(frozen=True)
class DiskUse:
    """What some directories hold."""

    size: int
    """Bytes on disk: a sparse file counts what it occupies."""
    files: int
    """Files, directories and links."""
    hidden: int
    """Directories that could not be read: their owner has locked or swapped them."""
    late: bool = False
    """Whether the time was over before all was counted."""


def disk_use(roots: Iterable[Path], *, most_files: int, seconds: float = math.inf) -> DiskUse:
    """Measure directories that something may be writing to at this moment.

    Args:
        roots: Where to look; a root itself does not count.
        most_files: Stop counting above this: the answer is then too small, but over the limit.
        seconds: Stop counting after this time: the answer is then too small, and says so.
    """
    size = files = hidden = 0
    until = time.monotonic() + seconds
    late = False
    linked: set[int] = set()
    for root in roots:
        walk = Walk(root, most=most_files + 1 - files, until=until)
        for _, info in walk:
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
