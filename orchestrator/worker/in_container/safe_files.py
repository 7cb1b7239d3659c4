"""Read, move and chmod a worker's files without following links or waiting for FIFOs.

The object directories of a worker's git directory are cleaned up before git reads them.
"""

import os
import re
import shutil
import stat
from io import BufferedReader


def open_regular(path: str) -> BufferedReader | None:
    """Open a regular file for reading; return None for links, directories and special files."""
    try:
        # protection: links-in-store-are-not-followed
        # protection: fifos-in-store-do-not-block
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    # protection: refs-must-be-regular-files
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return open(descriptor, "rb")


def read_start(path: str, limit: int = 1024) -> str:
    """Return the beginning of a regular file as text; empty for anything else."""
    file = open_regular(path)
    if file is None:
        return ""
    with file:
        # protection: length-of-read-refs-limited
        return file.read(limit).decode(errors="replace").strip()


def copy_regular(source: str, target: str, *, largest: int) -> bool:
    """Copy a regular file of at most `largest` bytes; return whether the file was copied."""
    file = open_regular(source)
    if file is None:
        return False
    with file:
        if os.fstat(file.fileno()).st_size > largest:
            return False
        with open(target, "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    return True


def write(path: str, text: str) -> None:
    """Write a small file."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def make_usable(path: str, bits: int, info: os.stat_result | None = None) -> None:
    """Add those permissions of `bits` that a file or directory lacks."""
    mode = stat.S_IMODE((info or os.lstat(path)).st_mode)
    if mode & bits != bits:
        # protection: permissions-of-locked-files-are-restored
        os.chmod(path, mode | bits)


def is_directory(path: str) -> bool:
    """Return whether a path is a directory, and not a link to one."""
    return stat.S_ISDIR(os.lstat(path).st_mode)


def is_whiteout(info: os.stat_result) -> bool:
    """Return whether an entry of an overlay's upper layer marks a file as deleted."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def put_aside(path: str, directory: str) -> None:
    """Move a file or directory to another directory, under a random name."""
    if is_directory(path):
        make_usable(path, stat.S_IRWXU)
    os.rename(path, os.path.join(directory, random_name()))


def random_name() -> str:
    """Return a random name, without the module `tempfile`, whose import takes long."""
    return os.urandom(16).hex()


def free_name(path: str) -> str:
    """Return a path that does not exist yet: `path` itself, or `path` with a number."""
    number = 1
    while os.path.lexists(candidate := path if number == 1 else f"{path}-{number}"):
        number += 1
    return candidate


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
    # protection: linked-object-directory-is-refused
    if os.path.lexists(objects) and not is_directory(objects):
        os.rename(objects, os.path.join(aside, "objects"))
    os.makedirs(objects, exist_ok=True)
    make_usable(objects, stat.S_IRWXU)
    for name in os.listdir(objects):
        folder = os.path.join(objects, name)
        # protection: unknown-object-directories-are-removed
        # protection: linked-object-subdirectories-are-removed
        if _OBJECT_FOLDER.fullmatch(name) and is_directory(folder):
            _tidy_folder(folder, aside)
        else:
            put_aside(folder, aside)


def _tidy_folder(folder: str, aside: str) -> None:
    make_usable(folder, stat.S_IRWXU)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        info = os.lstat(path)
        # protection: other-files-among-objects-are-removed
        # protection: objects-must-be-regular-files
        if stat.S_ISREG(info.st_mode) and _OBJECT_FILE.fullmatch(name):
            make_usable(path, stat.S_IRUSR, info)
        else:
            put_aside(path, aside)
