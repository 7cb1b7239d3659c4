"""Directories and lock files that several users of this machine share."""

import os
import stat
from pathlib import Path

from orchestrator.base.files.atomic import Access, access_given_by


def make_shared(path: Path) -> None:
    """Create a directory, and those above it, with the access that the directory above gives."""
    if path.is_dir():
        return
    if not path.parent.exists():
        make_shared(path.parent)
    access = access_given_by(path.parent, stat.S_ISGID | 0o777)
    try:
        path.mkdir()
    except FileExistsError:
        return
    if access is not None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _grant(descriptor, access)
        finally:
            os.close(descriptor)


def open_shared(path: Path) -> int:
    """Create or open a lock file, and return its descriptor.

    A file that this user may only read is opened for reading: it can be locked all the same.

    Raises:
        OSError: The file cannot be opened.
    """
    more = os.O_NOFOLLOW | os.O_CLOEXEC
    make_shared(path.parent)
    access = access_given_by(path.parent, 0o666)
    try:
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | more, 0o666)
    except FileExistsError:
        return os.open(path, os.O_RDONLY | more)
    if access is not None:
        _grant(made, access)
    return made


def _grant(descriptor: int, access: Access) -> None:
    if access.user != -1:
        os.fchown(descriptor, access.user, access.group)
    os.fchmod(descriptor, access.mode)
