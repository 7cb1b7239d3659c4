"""Copy the bytes of an open file to another, as a clone if the file system supports it."""

import fcntl
import os
import shutil
from contextlib import suppress

_CLONE = 0x40049409
"""Number of the ioctl FICLONE, which makes two files share their blocks until one of them is
changed.
"""


_CHUNK = 1024**3


def copy_bytes(source: int, target: int) -> None:
    """Copy an open file; the copy shares its blocks where possible, but is never a hard link."""
    try:
        fcntl.ioctl(target, _CLONE, source)
        return
    except OSError:
        pass
    with suppress(OSError, AttributeError):
        while os.copy_file_range(source, target, _CHUNK):
            pass
    # Copy the rest if the kernel could not copy everything itself.
    with (
        open(source, "rb", closefd=False, buffering=0) as a,
        open(target, "wb", closefd=False, buffering=0) as b,
    ):
        shutil.copyfileobj(a, b, 1024**2)
