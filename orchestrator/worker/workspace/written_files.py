"""Remove files that a worker wrote and that its branch also has.

Files that no commit contains, such as build output, links and files over the limits, stay until
the cleanup.
"""

import hashlib
import os
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.files.walk import Folders, Walk

MOST_FILES = 20_000
"""Maximum number of written files that are compared with the branch."""
_MOST_ENTRIES = 5 * MOST_FILES
"""Maximum number of written files and directories that are looked at."""
_LARGEST = 128 * 1024**2
"""Maximum size in bytes of a file that is compared; larger files are not committed as they are."""
_PIECE = 1024**2


def remove_committed(written: Path, committed: Mapping[str, str]) -> None:
    """Remove files that a commit has with the same content, and directories that become empty.

    Args:
        written: The directory that the worker wrote to. Nothing writes to it any more.
        committed: Object ids of the commit's regular files by path.
    """
    with suppress(OSError):
        found = [
            path
            for path, info in Walk(written, most=_MOST_ENTRIES)
            if stat.S_ISREG(info.st_mode) and info.st_size <= _LARGEST and path in committed
        ]
        folders = Folders(written)
        try:
            removed = [
                path for path in sorted(found) if _is_removed(folders, path, committed[path])
            ]
            _remove_empty(folders, removed)
        finally:
            folders.close()


def _is_removed(folders: Folders, path: str, wanted: str) -> bool:
    """Remove a file if its content is that of a git object; return whether it was removed."""
    place, _, name = path.rpartition("/")
    with suppress(OSError):
        folder = folders.open(place)
        # protection: written-file-that-no-commit-has-stays
        if _object_id(name, folder, len(wanted)) == wanted:
            os.unlink(name, dir_fd=folder)
            return True
    return False


def _object_id(name: str, folder: int, length: int) -> str:
    """Return the id that a file would have as a git object."""
    digest = hashlib.new("sha1" if length == 40 else "sha256", usedforsecurity=False)
    with open_regular(name, folder=folder) as file:
        digest.update(b"blob %d\0" % os.fstat(file.fileno()).st_size)
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _remove_empty(folders: Folders, removed: Collection[str]) -> None:
    """Remove the directories of removed files if nothing is left in them."""
    above = {str(parent) for path in removed for parent in PurePosixPath(path).parents} - {"."}
    for path in sorted(above, key=lambda folder: folder.count("/"), reverse=True):
        place, _, name = path.rpartition("/")
        with suppress(OSError):
            os.rmdir(name, dir_fd=folders.open(place))
