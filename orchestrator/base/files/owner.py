"""Whose files are, on a machine with several users."""

import os
import pwd
from pathlib import Path


def user_name(uid: int) -> str:
    """Return the name of a user of this machine, or `user UID` if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def owner_elsewhere(path: Path) -> tuple[int, int] | None:
    """Return uid and gid of a file's owner if this process is root's and the file is not; or None.

    Raises:
        OSError: The file does not exist.
    """
    info = path.stat()
    return (info.st_uid, info.st_gid) if os.geteuid() == 0 and info.st_uid != 0 else None


def own_place(state_dir: Path, name: str) -> Path:
    """Return the path of a directory of a repository's state that only this user uses.

    The name is followed by the user's id if the directory of that name is somebody else's.
    """
    usual = state_dir / name
    try:
        owner = usual.lstat().st_uid
    except OSError:
        return usual
    return usual if owner == os.geteuid() else state_dir / f"{name}-{os.geteuid()}"
