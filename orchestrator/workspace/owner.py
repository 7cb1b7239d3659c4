"""The user that a worker's processes and files belong to on the host."""

import os
from contextlib import suppress
from pathlib import Path

_OWN_USERS = 20_000
"""Added to the worker's number: user ids that ordinary systems do not use."""


def worker_user(worker_id: int) -> tuple[int, int]:
    """Return uid and gid of a worker: those of the caller, or for root a separate user."""
    if os.getuid() == 0:
        return _OWN_USERS + worker_id, _OWN_USERS + worker_id
    return os.getuid(), os.getgid()


def change_owner(root: Path, owner: tuple[int, int], *, keep: Path | None = None) -> None:
    """Change the owner of a tree that the host created, without following links.

    The root and the `.git` of a worktree `keep` keep their owner, so that the caller's git still
    trusts it. (An overlay's root takes its permissions from the upper layer.)
    """
    uid, gid = owner
    # Uses directory descriptors: with 20,000 files, resolving each path again would be slow.
    for folder, directories, files, descriptor in os.fwalk(root):
        kept = keep is not None and Path(folder) == keep
        for name in (*directories, *files):
            # The user may delete a file meanwhile.
            with suppress(FileNotFoundError):
                if not (kept and name == ".git"):
                    os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)
    if root != keep:
        os.lchown(root, uid, gid)
