"""Open files that others may have written: links, FIFOs and devices are refused."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegularError(OSError):
    """The path is not a regular file."""


def open_regular(path: str | Path, *, folder: int | None = None, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; never follow a link or block on a FIFO.

    Args:
        path: The file. Its parent directories may be links.
        folder: Descriptor of the directory that `path` is relative to.
        follow: Whether the file itself may be a link, for paths that the user gave.

    Raises:
        NotRegularError: The path is a FIFO, a device or a directory.
        OSError: The file does not exist, is a link or cannot be read.
    """
    no_link = 0 if follow else os.O_NOFOLLOW
    descriptor = os.open(path, os.O_RDONLY | no_link | os.O_NONBLOCK, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "the file is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_limited(path: str | Path, *, most: int, follow: bool = False) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    The `strerror` of a raised error describes the problem, even if the file is too large.

    Raises:
        OSError: `open_regular` cannot open the file, or the file is larger than `most`.
    """
    with open_regular(path, follow=follow) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"the file is larger than {most // 1024} KiB", str(path))
    return data
