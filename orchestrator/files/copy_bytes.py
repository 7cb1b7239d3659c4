"""Copy the bytes of one open file to another, as a clone where the file system can."""

import fcntl
import os
import shutil
from contextlib import suppress

_CLONE = 0x40049409
"""FICLONE: both files share their blocks until one of them is written."""


_CHUNK = 1024**3


def copy_bytes(source: int, target: int) -> None:
    """Copy an open file, sharing its blocks where the file system can; never a hard link."""
    try:
        fcntl.ioctl(target, _CLONE, source)
        return
    except OSError:
        pass
    with suppress(OSError, AttributeError):
        while os.copy_file_range(source, target, _CHUNK):
            pass
    # What is left, where the kernel copies nothing by itself, or not all.
    with (
        open(source, "rb", closefd=False, buffering=0) as a,
        open(target, "wb", closefd=False, buffering=0) as b,
    ):
        shutil.copyfileobj(a, b, 1024**2)
