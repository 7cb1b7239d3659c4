"""Write files atomically: after a crash, a file has either its old or its new content.

The new content goes to a file with a random name, which is created and never opened, so that no
prepared link or file can receive it; then that file is renamed within the same directory, which is
open all the time.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# protection: private-files-are-newly-created
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BY_UMASK = 0o666


class Access(NamedTuple):
    """Permissions and owner of a file."""

    mode: int
    user: int = -1
    """-1: the caller; so is the group."""
    group: int = -1


def access_given_by(directory: Path, mode: int) -> Access | None:
    """Return the access of a new file in a directory; None if the caller and the umask decide.

    Where the group may write to the directory, it may write to the file, as git shares a
    repository. What root creates in a directory of another user belongs to that user.

    Args:
        directory: The directory.
        mode: The most that the file's permissions can be.
    """
    info = directory.stat()
    foreign = os.geteuid() == 0 and info.st_uid != 0
    if not foreign and not info.st_mode & stat.S_IWGRP:
        return None
    owner = (info.st_uid, info.st_gid) if foreign else ()
    return Access(stat.S_IMODE(info.st_mode) & mode, *owner)


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a file so that readers, and a crash at any time, see either the old or the new text.

    Args:
        path: The file.
        text: The new content.
        durable: Whether to wait until the content is on the disk, so that it survives a loss of
            power.
    """
    _write(path, text.encode(), access_given_by(path.parent, 0o666), durable=durable)


def write_private(
    path: Path, content: bytes, *, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Write a file that only its owner can read, without waiting for the disk.

    Args:
        path: The file, in a directory that belongs to the caller or to `owner`.
        content: The new content; readers see either the old or the new content.
        mode: Permissions of the file.
        owner: User and group that the file belongs to. Default: the caller.
    """
    _write(path, content, Access(mode, *(owner or ())), durable=False)


def _write(path: Path, content: bytes, access: Access | None, *, durable: bool) -> None:
    folder = os.open(path.parent, _DIRECTORY)
    try:
        replace_file(folder, path.name, content, access, durable=durable)
    finally:
        os.close(folder)


def replace_file(
    folder: int, name: str, content: bytes, access: Access | None = None, *, durable: bool = False
) -> None:
    """Create a file in an open directory, or replace the file, link or FIFO of that name.

    Args:
        folder: Descriptor of the directory.
        name: The file's name.
        content: The new content.
        access: Permissions and owner of the file. Default: the caller's, by the umask.
        durable: Whether to wait until the content is on the disk.

    Raises:
        OSError: The file cannot be written; its old content is kept.
    """
    # protection: file-is-renamed-when-it-is-complete
    scratch = f".{secrets.token_hex(8)}.new"
    # A file with given permissions is never readable for more users than at the end.
    mode = _BY_UMASK if access is None else 0o600 & access.mode
    made = os.open(scratch, _NEW, mode, dir_fd=folder)
    try:
        with os.fdopen(made, "wb") as file:
            file.write(content)
            file.flush()
            if access is not None:
                # protection: private-files-belong-to-named-user
                os.fchown(made, access.user, access.group)
                # protection: private-files-are-for-their-owner-only
                os.fchmod(made, access.mode)
            if durable:
                os.fsync(made)
        os.replace(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(scratch, dir_fd=folder)
        raise
