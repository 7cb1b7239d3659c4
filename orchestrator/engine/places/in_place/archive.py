"""Archives of files: made piece by piece, and unpacked as if an attacker had made them.

The format is that of tar. The porter runs the same code, so only the standard library is used.
"""

import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.files.walk import Folders, Walk

LONGEST_PATH = 4096
LARGEST_ORDER = 16 * 1024**2
"""Maximum size in bytes of a command with its variables, or of a shell."""
_LONGEST_NAME = 255
_BLOCK = 512
_PIECE = 256 * 1024
_RECORD = 20 * _BLOCK
"""Size to which programs that make archives fill up the last blocks."""
END = bytes(2 * _BLOCK)
"""The end of an archive, after its last entry."""


class ArchiveError(Exception):
    """The archive, or what it was to contain, exceeds a limit or is not acceptable."""


def pack(
    root: Path | int,
    *,
    limit: float,
    most: int,
    top: str = "",
    omitted: list[str] | None = None,
) -> Iterator[bytes]:
    """Yield an archive of a directory, piece by piece, without following links.

    Args:
        root: The directory, or a descriptor of it.
        limit: Maximum size of all files in bytes.
        most: Maximum number of entries.
        top: Path of the directory in the archive. Without it, the directory itself is no entry,
            and only regular files and directories are packed; with it, symbolic links are too.
        omitted: If given, what exceeds a limit is left out too, and the paths of everything that
            is left out are added here.

    Raises:
        ArchiveError: A limit is exceeded, or a file or directory cannot be read as it was listed.
        OSError: A file cannot be read.
    """
    yield from entries(root, limit=limit, most=most, top=top, omitted=omitted)
    yield END


def entries(
    root: Path | int,
    *,
    limit: float,
    most: int,
    top: str = "",
    omitted: list[str] | None = None,
) -> Iterator[bytes]:
    """Yield what `pack` yields, without the end of the archive."""
    walk = Walk(root, most=most + 1)
    folders = Folders(root)
    size = 0
    try:
        if top:
            yield from _entry(top, os.stat(folders.open("")), "", 0)
        for path, info in walk:
            kind = stat.S_IFMT(info.st_mode)
            full = f"{top}/{path}" if top else path
            more = info.st_size if kind == stat.S_IFREG else 0
            # protection: archive-of-part-is-bounded
            fits = size + more <= limit and walk.seen <= most
            if not fits and omitted is None:
                raise ArchiveError(f"there are more than {limit} bytes or {most} files")
            is_short = omitted is None or len(os.fsencode(full)) <= LONGEST_PATH
            # protection: special-files-of-part-left-out
            is_kind = kind in (stat.S_IFREG, stat.S_IFDIR) or (bool(top) and kind == stat.S_IFLNK)
            if fits and is_short and is_kind:
                size += more
                folder, _, name = path.rpartition("/")
                yield from _entry(full, info, name, folders.open(folder))
            elif omitted is not None:
                omitted.append(path)
    finally:
        folders.close()
    if walk.hidden and omitted is None:
        raise ArchiveError("a directory cannot be read")


def file_entry(file: Path, path: str) -> Iterator[bytes]:
    """Yield the entry of one regular file, which has `path` in the archive.

    Raises:
        ArchiveError: The file became shorter.
        OSError: The file cannot be read.
    """
    yield from _entry(path, file.lstat(), str(file), None)


def text_entry(text: bytes, path: str, *, mode: int) -> Iterator[bytes]:
    """Yield the entry of a file of ours with a text."""
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(text), mode
    yield _header(entry) + text + bytes(-len(text) % _BLOCK)


def _entry(path: str, info: os.stat_result, name: str, folder: int | None) -> Iterator[bytes]:
    """Yield the entry of one file; its content is as long as `info` says, whatever happens."""
    entry = tarfile.TarInfo(path)
    entry.mode, entry.uid, entry.gid = stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid
    entry.mtime = int(info.st_mtime)
    if stat.S_ISREG(info.st_mode):
        entry.size = info.st_size
        yield _header(entry)
        with open_regular(name, folder=folder) as file:
            left = entry.size
            while left:
                data = file.read(min(left, _PIECE))
                if not data:
                    raise ArchiveError("a file became shorter while it was read")
                left -= len(data)
                yield data
        if padding := -entry.size % _BLOCK:
            yield bytes(padding)
    elif stat.S_ISLNK(info.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
        yield _header(entry)
    else:
        entry.type = tarfile.DIRTYPE
        yield _header(entry)


def _header(entry: tarfile.TarInfo) -> bytes:
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def unpack(pieces: Iterator[bytes], into: Path, *, limit: int, most: int) -> None:
    """Write the files of an archive below a directory, and nothing anywhere else.

    Only regular files and directories are accepted, with `rw` and `x` as their only modes. A second
    call replaces the files of an interrupted one.

    Args:
        pieces: The archive. It is read to its end only if it is acceptable.
        into: An existing directory.
        limit: Maximum size in bytes of all files.
        most: Maximum number of entries.

    Raises:
        ArchiveError: The archive is not acceptable; the files before the wrong one were written.
        OSError: A file cannot be written.
    """
    source = Source(pieces)
    folders = Folders(into)
    seen = size = 0
    try:
        while entry := _next_entry(source):
            seen, size = seen + 1, size + entry.size
            # protection: archive-has-few-entries
            if seen > most:
                raise ArchiveError(f"the archive has more than {most} entries")
            # protection: archive-has-small-files
            if size > limit:
                raise ArchiveError(f"the files of the archive need more than {limit} bytes")
            folder, name = _place(entry.name)
            try:
                _write(entry, source, folders.open(folder), name)
            except (NotADirectoryError, FileNotFoundError, IsADirectoryError) as error:
                raise ArchiveError("an entry of the archive is in no directory of it") from error
    finally:
        folders.close()
    source.drain()


class Source:
    """Reads exact numbers of bytes from pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, most: int) -> memoryview:
        """Return up to `most` bytes, at least one."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                raise ArchiveError("the archive ended too early")
            self._rest = memoryview(piece)
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    def exactly(self, count: int) -> bytes:
        """Return `count` bytes, which must be few."""
        data = b""
        while len(data) < count:
            data += self.read(count - len(data))
        return data

    def line(self, most: int) -> bytes:
        """Return the next line, without its end, of at most `most` bytes."""
        data = b""
        while b"\n" not in data:
            if len(data) > most:
                raise ArchiveError("a line is too long")
            data += self.read(most)
        line, _, rest = data.partition(b"\n")
        self._rest = memoryview(rest + bytes(self._rest))
        return line

    def up_to(self, most: int) -> bytes:
        """Return everything, which must not be more than `most` bytes."""
        data = bytes(self._rest)
        for piece in self._pieces:
            data += piece
            if len(data) > most:
                raise ArchiveError(f"there are more than {most} bytes")
        return data

    def drain(self) -> None:
        """Read to the end, where only padding may be, and no more than that of one record."""
        left = _RECORD
        for piece in chain((self._rest,), self._pieces):
            left -= len(piece)
            if left < 0 or any(piece):
                raise ArchiveError("there is something behind the end of the archive")


def _next_entry(source: Source) -> tarfile.TarInfo | None:
    """Return the next entry, with its full name; None at the end."""
    name = None
    while True:
        block = source.exactly(_BLOCK)
        if block == bytes(_BLOCK):
            return None
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ArchiveError(f"the archive is damaged: {error}") from error
        if entry.type != tarfile.GNUTYPE_LONGNAME or name is not None:
            break
        # protection: archive-has-short-names
        if not 0 < entry.size <= LONGEST_PATH + 1:
            raise ArchiveError("a name in the archive is too long")
        name = os.fsdecode(source.exactly(entry.size + -entry.size % _BLOCK).partition(b"\0")[0])
    if entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
        is_possible = entry.size >= 0
    else:
        is_possible = entry.type == tarfile.DIRTYPE and entry.size == 0
    # protection: archive-has-only-files-and-directories
    if not is_possible:
        raise ArchiveError("an entry of the archive is neither a regular file nor a directory")
    entry.name = entry.name if name is None else name
    return entry


def _place(path: str) -> tuple[str, str]:
    """Return directory and name of a path that stays below the top."""
    path = path.removesuffix("/")
    names = path.split("/")
    # protection: archive-stays-below-its-directory
    is_wrong = any(name in ("", ".", "..") or "\0" in name for name in names)
    encoded = [os.fsencode(name) for name in names]
    if is_wrong or max(map(len, encoded)) > _LONGEST_NAME or len(b"/".join(encoded)) > LONGEST_PATH:
        raise ArchiveError("a name in the archive is not acceptable")
    return "/".join(names[:-1]), names[-1]


def _write(entry: tarfile.TarInfo, source: Source, folder: int, name: str) -> None:
    if entry.type == tarfile.DIRTYPE:
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise ArchiveError("two entries of the archive have the same name") from None
        return
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    mode = 0o777 if entry.mode & stat.S_IXUSR else 0o666
    made = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode,
        dir_fd=folder,
    )  # fmt: skip
    with open(made, "wb") as file:
        left = entry.size
        while left:
            data = source.read(min(left, _PIECE))
            file.write(data)
            left -= len(data)
    source.exactly(-entry.size % _BLOCK)
