"""Clean up the object directories of a worker's git directory before git reads them."""

import os
import re
import stat

from orchestrator.worker.in_container.safe_files import (
    is_directory,
    make_usable,
    put_aside,
    random_name,
)

_OBJECT_FOLDER = re.compile(r"[0-9a-f]{2}|pack")
_OBJECT_FILE = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?|pack-[0-9a-f]+\.(?:pack|idx)")


def tidy_store(store: str) -> None:
    """Move everything but objects and packs out of the object directory of a git directory.

    Other files could be harmful: a commit graph may be wrong, an alternates file may point
    anywhere, and reading a FIFO may block.
    """
    make_usable(store, stat.S_IRWXU)
    tidy_objects(store, os.path.join(store, "objects"))


def tidy_objects(store: str, objects: str) -> None:
    """Move everything but objects and packs from an object directory to a new directory."""
    aside = os.path.join(store, f"aside-{random_name()}")
    os.mkdir(aside)
    if os.path.lexists(objects) and not is_directory(objects):
        os.rename(objects, os.path.join(aside, "objects"))
    os.makedirs(objects, exist_ok=True)
    make_usable(objects, stat.S_IRWXU)
    for name in os.listdir(objects):
        folder = os.path.join(objects, name)
        if _OBJECT_FOLDER.fullmatch(name) and is_directory(folder):
            _tidy_folder(folder, aside)
        else:
            put_aside(folder, aside)


def _tidy_folder(folder: str, aside: str) -> None:
    make_usable(folder, stat.S_IRWXU)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        info = os.lstat(path)
        if stat.S_ISREG(info.st_mode) and _OBJECT_FILE.fullmatch(name):
            make_usable(path, stat.S_IRUSR, info)
        else:
            put_aside(path, aside)
