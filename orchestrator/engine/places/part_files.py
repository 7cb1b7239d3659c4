"""The files of parts that are sent to a place, and how files are taken out of it again."""

import hashlib
import math
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator.base.errors import EngineError, UnsupportedError
from orchestrator.base.files.walk import Walk
from orchestrator.engine.interface.spec import BindMount
from orchestrator.engine.places.in_place.archive import ArchiveError, entries, file_entry, unpack
from orchestrator.engine.places.in_place.records import MOST_FILES
from orchestrator.engine.places.place import Part
from orchestrator.engine.places.porter_calls import PorterCalls, understood

FILE = "file"
"""Name of the single file of a part in its volume."""
_MOST_FILES = 2_000_000


def source_of(part: Part) -> Path:
    """Return the file or directory of this machine that a part is a copy of.

    Raises:
        UnsupportedError: It is an overlay.
    """
    if not isinstance(part.mount, BindMount):
        raise UnsupportedError("a place with volumes has no overlays", key="place.no-overlays")
    return part.mount.source


def is_file(source: Path) -> bool:
    """Return whether the source of a part is a single file.

    Raises:
        OSError: It does not exist.
    """
    return stat.S_ISREG(source.lstat().st_mode)


def described(source: Path) -> str:
    """Return a hash that changes when a file or directory changes.

    Raises:
        OSError: The source does not exist, or a part of it cannot be read.
    """
    digest = hashlib.sha256()
    walk = Walk(source, most=_MOST_FILES)
    found = [("", source.lstat())] if is_file(source) else sorted(walk, key=lambda entry: entry[0])
    for path, info in found:
        known = (path, info.st_mode, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns)
        digest.update(repr(known).encode("utf-8", "surrogateescape"))
    if walk.hidden:
        raise PermissionError(f"a directory in {source} cannot be read")
    return digest.hexdigest()


def archive_of(source: Path, top: str) -> Iterator[bytes]:
    """Yield an archive, without its end, of a file or directory.

    Args:
        source: The file or directory.
        top: Path of the directory in the archive, or of that with the file; may be empty.
    """
    if is_file(source):
        return file_entry(source, f"{top}/{FILE}" if top else FILE)
    return entries(source, limit=math.inf, most=_MOST_FILES, top=top)


def take_part(porter: PorterCalls, part: str, into: Path, *, limit: int, partial: bool) -> int:
    """Let the files of a part be packed in the place, and unpack them here, as in `Place.take`.

    Raises:
        EngineError: The files could not be transferred.
        OSError: The disk is full.
    """
    amount = "fitting" if partial else "all"
    packed = porter.call("pack", part, str(limit), amount)
    with understood():
        expected = packed["size"], packed["sha256"]
        left_out = int(packed["left_out"])
    digest = hashlib.sha256()
    size = 0

    def pieces() -> Iterator[bytes]:
        nonlocal size
        for _, data in porter.read({part: 0}):
            digest.update(data)
            size += len(data)
            yield data

    try:
        unpack(pieces(), into, limit=limit, most=MOST_FILES)
    except ArchiveError as error:
        raise EngineError(
            f"cannot take files from the place: {error}", key="place.transfer"
        ) from error
    if (size, digest.hexdigest()) != expected:
        raise EngineError(
            "files from the place were altered on their way", key="place.data-altered"
        )
    return left_out
