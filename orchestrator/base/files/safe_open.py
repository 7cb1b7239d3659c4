"""Open files that others may have written: links, FIFOs and devices are refused."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

_INHERITED = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/self/fd/\d+")
"""Paths of inherited descriptors. Opening another FIFO could block forever."""


class NotRegularError(OSError):
    """The path is not a regular file."""


def open_regular(path: str | Path, *, folder: int | None = None, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading; never follow a link or block on a FIFO.

    Args:
        path: The file. Its parent directories may be links.
        folder: Descriptor of the directory that `path` is relative to.
        follow: Whether the file may be a link, or a pipe that this process inherited, such as a
            shell's `<(command)`; for paths that the user gave.

    Raises:
        NotRegularError: The path is a FIFO, a device or a directory.
        OSError: The file does not exist, is a link or cannot be read.
    """
    no_link = 0 if follow else os.O_NOFOLLOW
    # protection: links-in-harvests-output-not-followed
    # protection: fifos-in-harvests-output-do-not-block
    descriptor = os.open(path, os.O_RDONLY | no_link | os.O_NONBLOCK, dir_fd=folder)
    mode = os.fstat(descriptor).st_mode
    if follow and stat.S_ISFIFO(mode) and _INHERITED.fullmatch(str(path)):
        os.set_blocking(descriptor, True)
    # protection: only-regular-files-of-harvests-output-are-read
    elif not stat.S_ISREG(mode):
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


def read_below(root: Path, path: str, *, most: int) -> bytes:
    """Return the content of a regular file below a directory, following no link on the way.

    Args:
        root: The directory.
        path: Path of the file, relative to `root` and without `..`.
        most: Maximum size in bytes.

    Raises:
        OSError: The file does not exist, lies behind a link, is not regular, or is larger.
    """
    *folders, name = Path(path).parts
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for below in folders:
            # protection: links-below-directory-are-not-followed
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(below, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        with open_regular(name, folder=folder) as file:
            data = file.read(most + 1)
    finally:
        os.close(folder)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"the file is larger than {most // 1024} KiB", path)
    return data
