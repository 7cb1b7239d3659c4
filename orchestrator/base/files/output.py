"""Write files at paths that the user gave, although others may have prepared what is there.

A commit can contain a link at the path of a report, or in place of one of its directories. Every
directory of a path is therefore opened by descriptor, relative to the one before, and links are
followed by this module: those outside of repositories, as users expect, and none in a repository.
Files are replaced as a whole; FIFOs, character devices and this process's own descriptors, such as
/dev/stdout, are written to.
"""

import errno
import os
import select
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.base.files.atomic import Access, replace_file

# protection: no-directory-is-link-that-was-put-there-meanwhile
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
"""Number of links that the kernel follows in one path."""
_OF_GIT = frozenset(
    {
        *("commondir", "config", "config.worktree", "gitdir", "head", "index", "packed-refs"),
        *("branches", "hooks", "info", "logs", "modules", "objects", "orchestrator", "refs"),
        *("rr-cache", "shallow", "worktrees"),
    }
)
"""Names in a git directory that git or this program gives a meaning."""
_PATIENCE = 60.0
"""Maximum number of seconds to wait for the reader of a FIFO or device."""
_IN_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV})
"""Errors after which an existing file is written in place: its directory is not writable, or the
file is the target of a mount.
"""


def check_output(path: Path) -> None:
    """Check that a file can be written, without creating or changing anything.

    Raises:
        OSError: The file cannot be written, with the cause in `strerror`.
    """
    with _found(path, make=False) as place:
        if place.info is None or (place.is_regular and not place.is_writable):
            writable = os.access(".", os.W_OK | os.X_OK, dir_fd=place.folder)
        else:
            writable = place.is_writable
        if not writable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def write_output(path: Path, content: bytes, *, top: Path | None = None) -> None:
    """Create or replace a file as a whole, or write to a FIFO or device; create its directories.

    A replaced file keeps its mode, and its owner if the caller may set the owner.

    Args:
        path: The file.
        content: The new content.
        top: Top directory of a repository, if it does not contain `.git`.

    Raises:
        OSError: The file cannot be written, with the cause in `strerror`.
    """
    with _found(path, make=True, top=top) as place:
        try:
            if place.descriptor is not None:
                _send(os.dup(place.descriptor), content)
            elif place.info is not None and not place.is_regular:
                _send(place.open(os.O_NONBLOCK), content)
            else:
                _replace(place, content)
        except OSError as error:
            # The name of a temporary file would say nothing to the user.
            raise OSError(error.errno, error.strerror, str(path)) from error


def create_output(path: Path, content: Iterable[bytes]) -> None:
    """Create a file that must not exist yet; root's belongs to the directory's owner.

    Nothing is left if the content ends with an exception.

    Raises:
        OSError: The file exists, or cannot be created.
    """
    with _found(path, make=True) as place:
        made = place.open(os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(made, "wb") as file:
                file.writelines(content)
                here = os.fstat(place.folder)
                if os.geteuid() == 0 and here.st_uid != 0:
                    os.fchown(made, here.st_uid, here.st_gid)
        except BaseException:
            with suppress(OSError):
                os.unlink(place.name, dir_fd=place.folder)
            raise


def open_to_append(path: Path) -> int:
    """Open a file to append to it, and return its descriptor; create the file if it is missing.

    Raises:
        OSError: The file cannot be opened.
    """
    with _found(path, make=True) as place:
        return place.open(os.O_APPEND | (0 if place.info else os.O_CREAT | os.O_EXCL))


@contextmanager
def output_directory(path: Path) -> Iterator[int]:
    """Open a directory, created if it is missing, and yield its descriptor for `replace_file`.

    Raises:
        OSError: The directory cannot be created or opened.
    """
    with _found(path / "any", make=True) as place:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=place.folder)
        try:
            yield folder
        finally:
            os.close(folder)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a path leads: a name in an open directory, or a descriptor of this process."""

    folder: int
    name: str
    info: os.stat_result | None = None
    """What has the name; None if there is nothing."""
    descriptor: int | None = None

    @property
    def is_regular(self) -> bool:
        return self.info is not None and stat.S_ISREG(self.info.st_mode)

    @property
    def is_writable(self) -> bool:
        return self.descriptor is not None or os.access(self.name, os.W_OK, dir_fd=self.folder)

    def open(self, flags: int) -> int:
        """Open for writing what was found, and nothing that took its place meanwhile."""
        flags |= os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        until = time.monotonic() + _PATIENCE
        while (opened := self._open_if_read(flags)) is None:
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, "no program reads the FIFO")
            time.sleep(0.05)
        # protection: what-took-files-place-is-not-written-to
        if self.info is not None and not os.path.samestat(self.info, os.fstat(opened)):
            os.close(opened)
            raise OSError(errno.EAGAIN, "the file was replaced meanwhile", self.name)
        return opened

    def _open_if_read(self, flags: int) -> int | None:
        """Return a descriptor; None for a FIFO that no program reads yet."""
        try:
            return os.open(self.name, flags, 0o666, dir_fd=self.folder)
        except OSError as error:
            if error.errno == errno.ENXIO and self.info and stat.S_ISFIFO(self.info.st_mode):
                return None
            raise


@dataclass
class _Walk:
    """Opens the directories of a path one after the other."""

    top: os.stat_result | None
    folder: int = field(default_factory=lambda: os.open("/", _DIRECTORY))
    names: list[str] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)
    """For each directory of `names`, and before them `/`: whether it is in a repository."""

    def __post_init__(self) -> None:
        self.inside = [self._is_top()]

    def restart(self) -> None:
        """Return to `/`, for an absolute link."""
        self._move("/")
        self.names, self.inside = [], self.inside[:1]

    def enter(self, name: str) -> None:
        """Open a directory below, or with `..` the one above."""
        self._move(name)
        if name == "..":
            self.names, self.inside = self.names[:-1], self.inside[:-1] or self.inside
            return
        # Devices are no part of a repository at `/`.
        # protection: what-is-below-repositorys-directory-is-in-repository
        inside = self.inside[-1] and not (not self.names and name in ("dev", "proc"))
        self.names.append(name)
        self.inside.append(inside or self._is_top())

    def check_link(self, name: str, info: os.stat_result) -> None:
        """Check that the owner of this directory, or the caller, created a link.

        Raises:
            OSError: A commit, or another user of a directory for everybody, may have created it.
        """
        # protection: no-link-in-repository-is-followed
        if self.inside[-1]:
            raise OSError(
                errno.ELOOP,
                f"`{self.path_of(name)}` is a link in a repository, where a commit may have put "
                "it: name the file that is meant",
            )
        self.check_owner(name, info)

    def check_owner(self, name: str, info: os.stat_result) -> None:
        """Check what the kernel checks with `protected_symlinks`, which can be turned off.

        Raises:
            OSError: Another user created the entry of a directory such as /tmp.
        """
        here = os.fstat(self.folder)
        shared = here.st_mode & stat.S_ISVTX and here.st_mode & stat.S_IWOTH
        # protection: no-entry-of-another-user-in-tmp-is-used
        if shared and info.st_uid not in (os.geteuid(), here.st_uid):
            raise OSError(errno.EACCES, f"`{self.path_of(name)}` belongs to another user")

    def check_name(self, name: str) -> None:
        """Check that the entry of a git directory is none of git's own.

        Raises:
            OSError: Git would read, or run, what is written.
        """
        # protection: gits-own-files-are-not-written
        if name.lower() in _OF_GIT and all(map(self._has, ("objects", "refs"))):
            raise OSError(errno.EACCES, f"`{self.path_of(name)}` is a part of a git directory")

    def path_of(self, name: str) -> str:
        return "/" + "/".join((*self.names, name))

    def _move(self, name: str) -> None:
        below = os.open(name, _DIRECTORY, dir_fd=self.folder)
        os.close(self.folder)
        self.folder = below

    def _is_top(self) -> bool:
        is_given = self.top is not None and os.path.samestat(self.top, os.fstat(self.folder))
        # protection: repositorys-top-may-be-without-git
        return is_given or self._has(".git")

    def _has(self, name: str) -> bool:
        return _lstat(name, self.folder) is not None


@contextmanager
def _found(path: Path, *, make: bool, top: Path | None = None) -> Iterator[_Place]:
    """Follow a path, and yield where it leads.

    Args:
        path: The path.
        make: Whether to create missing directories. Otherwise, if one is missing, a place in the
            directory that exists is yielded.
        top: Top directory of a repository.
    """
    walk = _Walk(None if top is None else top.stat())
    try:
        yield _end_of(walk, Path.cwd() / path, make=make)
    finally:
        os.close(walk.folder)


def _end_of(walk: _Walk, path: Path, *, make: bool) -> _Place:
    todo, links = [*reversed(path.parts[1:])], 0
    while todo:
        name = todo.pop()
        info = _lstat(name, walk.folder)
        walk.check_name(name)
        if not todo and (number := _descriptor(walk.folder, name)) is not None:
            return _Place(folder=walk.folder, name=name, info=info, descriptor=number)
        if info is not None and stat.S_ISLNK(info.st_mode):
            walk.check_link(name, info)
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            todo += reversed(_target_parts(walk, name))
        elif not todo and name != "..":
            if info is not None:
                walk.check_owner(name, info)
                _check_kind(info)
            if name.lower() == ".git":
                raise OSError(errno.EACCES, "is the pointer to a git directory")
            return _Place(folder=walk.folder, name=name, info=info)
        elif info is None and not make:
            return _Place(folder=walk.folder, name=name)
        else:
            if info is None:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=walk.folder)
            walk.enter(name)
    raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))


def _target_parts(walk: _Walk, name: str) -> tuple[str, ...]:
    """Return the parts of a link's target, from the walk's directory on."""
    target = Path(os.readlink(name, dir_fd=walk.folder))
    if not target.is_absolute():
        return target.parts
    walk.restart()
    return target.parts[1:]


def _lstat(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _descriptor(folder: int, name: str) -> int | None:
    """Return the descriptor that a name in /proc/self/fd stands for; None in other directories.

    Raises:
        OSError: This process was not started with the descriptor, or opened it itself.
    """
    own = Path("/proc/self/fd")
    if not (own.exists() and os.path.samestat(os.fstat(folder), own.stat())):
        return None
    # Python opens descriptors that child processes do not inherit.
    with suppress(OSError, ValueError):
        # protection: no-own-descriptor-is-written-to
        if os.get_inheritable(int(name)):
            return int(name)
    raise OSError(errno.EBADF, f"this process was started without a descriptor {name}")


def _check_kind(info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if stat.S_ISBLK(info.st_mode) or stat.S_ISSOCK(info.st_mode):
        raise OSError(errno.EINVAL, "is a disk or a socket, not a file")


def _replace(place: _Place, content: bytes) -> None:
    """Replace a regular file, or create it; write in place if only this is possible."""
    info = place.info
    if info is None:
        replace_file(place.folder, place.name, content, durable=True)
        return
    # The file keeps its owner and its group as far as this process may set them.
    is_root = os.geteuid() == 0
    groups = {info.st_gid} if is_root else {os.getegid(), *os.getgroups()}
    access = Access(
        stat.S_IMODE(info.st_mode) & 0o777,
        info.st_uid if is_root else -1,
        info.st_gid if info.st_gid in groups else -1,
    )
    try:
        replace_file(place.folder, place.name, content, access, durable=True)
    except OSError as error:
        if error.errno not in _IN_PLACE:
            raise
        with os.fdopen(place.open(0), "wb") as file:
            file.truncate(0)
            file.write(content)


def _send(descriptor: int, content: bytes) -> None:
    """Write to a FIFO, device or inherited descriptor, and close it.

    Raises:
        OSError: The reader has gone, or reads nothing for a long time.
    """
    left = memoryview(content)
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        while left:
            if not poll.poll(_PATIENCE * 1000):
                raise TimeoutError(errno.ETIMEDOUT, "nobody reads what was written")
            # What fits into a pipe that can be written; more would wait for the reader.
            with suppress(BlockingIOError):
                left = left[os.write(descriptor, left[: select.PIPE_BUF]) :]
    finally:
        os.close(descriptor)
