"""The files of a sandbox, as its own commands see them.

Every call runs a command in the sandbox, as its user: a path can lead nowhere that the sandbox
cannot go, whatever links, FIFOs and devices are in the way, and a call that hangs ends at its
timeout. What comes back is hostile, and bounded.
"""

import errno
import io
import math
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath

from orchestrator.base.errors import EngineError
from orchestrator.base.files.walk import Folders
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.values import Model
from orchestrator.engine.places.in_place.archive import ArchiveError, pack, unpack
from orchestrator.sandbox.live.process import Process
from orchestrator.sandbox.models import WORKSPACE, Finished

_PATIENCE = 120.0
_MOST_PACKED = 10**7
_MOST_LISTED = 100_000
_LARGEST_LIST = 64 * 1024**2
_READ = '[ -e "$1" ] || exit 41; [ -d "$1" ] && exit 42; [ -f "$1" ] || exit 43; exec cat -- "$1"'
_WRITE = """\
[ -d "$1" ] && exit 42
case $1 in */*) mkdir -p -- "${1%/*}" || exit 45;; esac
if [ -e "$1" ] && [ ! -f "$1" ]; then exit 43; fi
new=$1.$$.new
cat > "$new" && { [ -z "$2" ] || chmod -- "$2" "$new"; } && mv -f -- "$new" "$1" && exit 0
rm -f -- "$new"; exit 45"""
_STAT = '[ -e "$1" ] || [ -h "$1" ] || exit 41; exec stat -c "%f %s %Y %u %g" -- "$1"'
_LIST = """\
[ -e "$1" ] || exit 41
[ -d "$1" ] || exit 44
cd -- "$1" || exit 45
set -- * .[!.]* ..?*
for name; do
  { [ -e "./$name" ] || [ -h "./$name" ]; } || continue
  said=$(stat -c "%f %s %Y %u %g" -- "./$name") && printf '%s %s\\0' "$said" "$name"
done"""
_MOVE = '[ -e "$1" ] || [ -h "$1" ] || exit 41; [ -d "$2" ] && exit 42; exec mv -f -- "$1" "$2"'
_PACK = '[ -e "$1" ] || exit 41; [ -d "$1" ] || exit 44; cd -- "$1" && exec tar -cf - .'
_UNPACK = 'mkdir -p -- "$1" && cd -- "$1" && exec tar -xf -'
_NUMBERS = {41: errno.ENOENT, 42: errno.EISDIR, 43: errno.EINVAL, 44: errno.ENOTDIR}
"""Numbers of errors by the exit codes of these scripts; Python knows the class of each number."""


class FileInfo(Model):
    """A file, directory, link or special file of a sandbox."""

    name: str
    """Last part of its path; bytes that are not UTF-8 are surrogates, as in Python's own names."""
    kind: str
    """`file`, `directory`, `link` or `special`."""
    size: int
    mode: int
    """Permission bits."""
    modified: int
    """Seconds since the epoch."""
    user: int
    group: int


class Files:
    """Read and write the files of a sandbox. Relative paths begin at `/workspace`."""

    def __init__(
        self, run: Callable[..., Finished], start: Callable[..., Process], workspace: Path | None
    ) -> None:
        """Store the arguments.

        Args:
            run: Runs a command in the sandbox: `Sandbox.run`.
            start: Starts one: `Sandbox.start`.
            workspace: The directory of this machine that the sandbox sees as `/workspace`; None if
                it is elsewhere.
        """
        self._run = run
        self._start = start
        self._workspace = workspace

    def read(self, path: str, *, limit: int = 100 * 1024**2) -> bytes:
        """Return the content of a regular file of at most `limit` bytes.

        Raises:
            FileNotFoundError: There is no such file.
            IsADirectoryError: It is a directory.
            PermissionError: The sandbox's user may not read it.
            OSError: It is no regular file, or larger.
        """
        done = self._do(_READ, path, limit=limit)
        return done.stdout

    def write(self, path: str, content: bytes, *, mode: int | None = None) -> None:
        """Create a file with its directories, or replace a regular file, at once.

        Args:
            path: The file.
            content: Its content.
            mode: Its permission bits. Default: by the sandbox's umask.

        Raises:
            IsADirectoryError: It is a directory.
            OSError: It cannot be written, or is no regular file.
        """
        self._do(_WRITE, path, "" if mode is None else f"{mode:o}", stdin=content)

    def stat(self, path: str) -> FileInfo:
        """Return what is known of a file; a link is not followed.

        Raises:
            FileNotFoundError: There is no such file.
        """
        said = self._do(_STAT, path).stdout
        return _info(path.rstrip("/").rpartition("/")[2] or "/", said.decode().split())

    def list(self, path: str = ".") -> list[FileInfo]:
        """Return the entries of a directory, sorted by name.

        Raises:
            FileNotFoundError: There is no such directory.
            NotADirectoryError: It is no directory.
            OSError: It has too many entries.
        """
        said = self._do(_LIST, path, limit=_LARGEST_LIST).stdout
        entries = said.split(b"\0")[:-1]
        if len(entries) > _MOST_LISTED:
            raise OSError(errno.EFBIG, f"more than {_MOST_LISTED:,} entries", path)
        found = []
        for entry in entries:
            *fields, name = entry.split(b" ", 5)
            found.append(_info(os.fsdecode(name), [field.decode() for field in fields]))
        return sorted(found, key=lambda info: info.name)

    def make_dir(self, path: str) -> None:
        """Create a directory and those above it, unless they exist."""
        self._do('exec mkdir -p -- "$1"', path)

    def move(self, source: str, target: str) -> None:
        """Rename a file or directory; a regular file at `target` is replaced.

        Raises:
            FileNotFoundError: There is no `source`.
            IsADirectoryError: `target` is a directory.
        """
        self._do(_MOVE, source, target)

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; no such file is no error."""
        self._do('exec rm -rf -- "$1"', path)

    def upload(self, source: Path, target: str = ".") -> None:
        """Copy a directory of this machine into a directory of the sandbox.

        Links stay links, and what is neither file, directory nor link is left out. The image needs
        the program `tar`.

        Raises:
            OSError: A file cannot be read or written.
        """
        self.unpack(pack(source, limit=math.inf, most=_MOST_PACKED, top="."), target)

    def unpack(self, pieces: Iterator[bytes], target: str) -> None:
        """Write the files of a tar archive into a directory of the sandbox.

        Raises:
            OSError: A file cannot be read or written.
        """
        process = self._start(("sh", "-c", _UNPACK, "sh", _word(target)))
        try:
            # If the command ends early, its result says why.
            with suppress(EngineError):
                for piece in pieces:
                    process.write(piece)
                process.close_stdin()
        except BaseException:
            process.kill()
            raise
        _checked(process.wait(), target)

    def download(
        self, source: str, target: Path, *, limit: int = 1024**3, most_files: int = 100_000
    ) -> None:
        """Copy a directory of the sandbox into a new directory of this machine.

        Only regular files and directories are written, and none outside of `target`; links and
        special files are left out. Outside of `/workspace`, the image needs the program `tar`.

        Args:
            source: The directory.
            target: The directory here. It must not exist.
            limit: Maximum size in bytes of the files together.
            most_files: Maximum number of files and directories.

        Raises:
            FileNotFoundError: There is no such directory.
            NotADirectoryError: It is no directory.
            FileExistsError: `target` exists.
            OSError: The files exceed a limit, or cannot be read or written.
        """
        target.mkdir(parents=True)
        inside = PurePosixPath(WORKSPACE, source)
        # protection: paths-of-callers-stay-in-sandbox
        is_plain = ".." not in inside.parts and inside.is_relative_to(WORKSPACE)
        if self._workspace is not None and is_plain:
            with closing(Folders(self._workspace)) as folders:
                try:
                    below = folders.open("/".join(inside.relative_to(WORKSPACE).parts))
                except OSError:
                    # A link on the way is followed below, by the sandbox itself.
                    below = None
                if below is not None:
                    try:
                        unpack(
                            pack(below, limit=limit, most=most_files), target, limit=limit,
                            most=most_files,
                        )  # fmt: skip
                    except ArchiveError as error:
                        raise OSError(errno.EFBIG, str(error), source) from error
                    return
        # An archive has headers and padding of up to 1.5 KiB for each file.
        packed = self._do(_PACK, source, limit=limit + 2048 * most_files).stdout
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            size = files = 0
            for member in _members(archive):
                files, size = files + 1, size + member.size
                # protection: downloads-limited
                if files > most_files or size > limit:
                    raise OSError(errno.EFBIG, "the files exceed the limit", source)
                # protection: only-files-and-directories-are-downloaded
                if member.isreg() or member.isdir():
                    # protection: downloads-stay-in-their-directory
                    archive.extract(member, target, filter="data", set_attrs=True)

    def _do(self, script: str, *words: str, stdin: bytes | None = None, limit: int = 64 * 1024) -> (
        Finished
    ):  # fmt: skip
        done = self._run(
            ("sh", "-c", script, "sh", *map(_word, words)),
            stdin=stdin, timeout=_PATIENCE, output_limit=limit + 64 * 1024,
        )  # fmt: skip
        if done.truncated or len(done.stdout) > limit:
            raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", words[0])
        return _checked(done, words[0])


def _word(path: str) -> str:
    """Return a path as an argument of a command, which takes it for no option."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path has no NUL", path)
    return f"./{path}" if path.startswith("-") else path


def _checked(done: Finished, path: str) -> Finished:
    """Return the result of a command of ours, which succeeded.

    Raises:
        OSError: It did not.
        EngineError: Its container ended first.
    """
    if done.exit_code in _NUMBERS:
        number = _NUMBERS[done.exit_code]
        raise OSError(number, os.strerror(number), path)
    if done.ok:
        return done
    said = one_line(done.stderr.decode("utf-8", "replace"), limit=200)
    if done.exit_code is None:
        raise EngineError(
            f"the files of the sandbox cannot be used: {done.message}", key="sandbox.files-failed"
        )
    if "ermission denied" in said:
        raise PermissionError(errno.EACCES, said, path)
    raise OSError(errno.EIO, said or f"ended with {done.reason}", path)


def _info(name: str, fields: list[str]) -> FileInfo:
    mode = int(fields[0], 16)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    size, modified, user, group = map(int, fields[1:5])
    return FileInfo(
        name=name, kind=kinds.get(stat.S_IFMT(mode), "special"), mode=stat.S_IMODE(mode),
        size=size, modified=modified, user=user, group=group,
    )  # fmt: skip


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    try:
        yield from archive
    except tarfile.TarError as error:
        raise OSError(errno.EIO, f"the archive is damaged: {error}") from error
