"""Measure what a worker has written: bytes and files, following no link, bounded."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 512


@dataclass(frozen=True)
class DiskUse:
    """What some directories hold."""

    size: int
    """Bytes on disk: a sparse file counts what it occupies."""
    files: int
    """Files, directories and links."""
    hidden: int
    """Directories that could not be read: their owner has locked them."""


def disk_use(roots: Iterable[Path], *, most_files: int) -> DiskUse:
    """Measure directories that something may be writing to at this moment.

    Args:
        roots: Where to look; a root itself does not count.
        most_files: Stop counting above this: the answer is then too small, but over the limit.
    """
    size = files = hidden = 0
    pending = [str(root) for root in roots]
    linked: set[int] = set()
    while pending and files <= most_files:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    files += 1
                    if info.st_nlink == 1 or info.st_ino not in linked:
                        size += info.st_blocks * _BLOCK
                    if stat.S_ISDIR(info.st_mode):
                        pending.append(entry.path)
                    elif info.st_nlink > 1:
                        linked.add(info.st_ino)
        except FileNotFoundError:
            continue
        except OSError:
            hidden += 1
    return DiskUse(size=size, files=files, hidden=hidden)
