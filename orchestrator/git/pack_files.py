"""Link or copy the files of packs, and check that they are whole."""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

from orchestrator.files.safe_open import open_regular

_ALL_READ = 0o444


def put_pack(pack: Path, directory: Path, *, checksum: str) -> bool:
    """Link or copy a pack of the user's repository; return False if it is damaged or gone.

    Args:
        pack: The pack.
        directory: The directory that gets it, with its index.
        checksum: Name of the hash whose value ends the pack.
    """
    files = (pack.with_suffix(".idx"), pack)
    try:
        for file in files:
            put_file(file, directory / file.name)
        if _is_sound(directory / pack.name, checksum):
            return True
    except OSError:
        # The user's git has just removed the pack.
        pass
    for file in files:
        (directory / file.name).unlink(missing_ok=True)
    return False


def put_file(file: Path, place: Path) -> None:
    """Link a file to a new place; copy it if it cannot be linked or not all users may read it.

    Raises:
        OSError: It is not a regular file, or cannot be read.
    """
    # protection: links-among-shared-packs-are-not-followed
    with open_regular(file) as source:
        # The mode of a file of the user is not changed.
        # protection: pack-that-not-all-may-read-is-copied
        if os.fstat(source.fileno()).st_mode & _ALL_READ == _ALL_READ:
            with suppress(OSError):
                os.link(file, place, follow_symlinks=False)
                return
        with place.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1024**2)
            copy.flush()
            os.fchmod(copy.fileno(), _ALL_READ)
            os.fsync(copy.fileno())


def is_pair(pack: Path, checksum: int) -> bool:
    """Return whether a pack and its index end with the same checksum, of so many bytes."""
    with open_regular(pack) as file, open_regular(pack.with_suffix(".idx")) as index:
        file.seek(-checksum, os.SEEK_END)
        index.seek(-2 * checksum, os.SEEK_END)
        # protection: shared-packs-end-with-checksum-of-their-index
        return file.read() == index.read(checksum)


def _is_sound(pack: Path, checksum: str) -> bool:
    """Return whether a pack's content has the checksum at its end, which its index has too."""
    digest = hashlib.new(checksum)
    with open_regular(pack) as file:
        rest = file.seek(0, os.SEEK_END) - digest.digest_size
        file.seek(0)
        while rest > 0 and (block := file.read(min(rest, 1024**2))):
            digest.update(block)
            rest -= len(block)
        # protection: pack-of-repository-is-undamaged
        return file.read() == digest.digest() and is_pair(pack, digest.digest_size)
