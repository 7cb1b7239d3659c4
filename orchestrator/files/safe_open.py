"""Open files that somebody else may have written: a link, FIFO or device is refused."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegularError(OSError):
    """What lies there is not a regular file."""


def open_regular(path: str | Path, *, folder: int | None = None, follow: bool = False) -> BinaryIO:
    """Open a file for reading, unless it is not one; neither follows a link nor waits for a FIFO.

    Args:
        path: The file; only its last part must not be a link.
        folder: The descriptor of a directory that `path` starts in.
        follow: Whether the file may be a link: for a path that the user gave.

    Raises:
        NotRegularError: It is a FIFO, a device or a directory.
        OSError: It is not there, or a link, or may not be read.
    """
    no_link = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | no_link | os.O_NONBLOCK, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb")
