"""Make a worker's files readable for git, and record files that need special treatment.

Git must read every file that a worker wrote or moved, even if size and time are unchanged.
"""

import errno
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress

from orchestrator.worker.in_container.host_git import HostGit, Notes, room
from orchestrator.worker.in_container.safe_files import free_name, is_whiteout, make_usable

LARGEST_FILE = 100 * 1024 * 1024
NESTED = ".git-of-a-nested-repository"
_HOLES = 1024 * 1024
"""Number of bytes that a file may have beyond its size on the disk before it counts as sparse."""
_TOO_LARGE = f"a file over {LARGEST_FILE >> 20} MiB was left out"


class WorkTree:
    """The worker's worktree, as it is mounted in the container that packs its files."""

    def __init__(self, root: str, notes: Notes, submodules: Collection[str]) -> None:
        self.root = root
        self.left_out: dict[str, str] = {}
        """Files that are not committed, each with the reason."""
        self.written: list[str] = []
        """Regular files that the worker may have written."""
        self.folders: list[str] = []
        """Directories that the worker may have moved."""
        self._notes = notes
        self._submodules = submodules
        self._holes = room()
        """Bytes that sparse files may still have beyond their size on the disk."""

    def tidy(self, written: str, *, since: int) -> None:
        """Remove special files, restore permissions, and rename nested git directories.

        Args:
            written: Directory with the files that the worker wrote: the overlay's upper layer, or
                the whole worktree if it is no overlay.
            since: Time of the last change that was not the worker's, in nanoseconds.
        """
        pending = [""]
        while pending:
            inside = pending.pop()
            self.folders.append(inside)
            found = self._tidy_directory(inside, written, since)
            pending += [os.path.join(inside, name) for name in found]

    def _tidy_directory(self, inside: str, written: str, since: int) -> list[str]:
        """Clean up the entries of one directory; return its subdirectories to clean up next."""
        directory = os.path.join(self.root, inside)
        try:
            make_usable(directory, stat.S_IRWXU)
            with os.scandir(os.path.join(written, inside)) as entries:
                return [e.name for e in list(entries) if self._tidy_entry(directory, e, since)]
        # protection: unreadable-file-keeps-no-other-file-out
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            # The path is longer than the system allows: git cannot read it either.
            self._notes.add_path(f"a directory was left out ({error.strerror})", directory[:200])
            return []

    def _tidy_entry(self, directory: str, entry: "os.DirEntry[str]", since: int) -> bool:
        """Clean up one entry; return whether it is a directory to clean up next."""
        path = os.path.join(directory, entry.name)
        if entry.name == ".git":
            self._rename_nested(path)
            return False
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return not entry.name.startswith(NESTED)
        if stat.S_ISREG(info.st_mode):
            make_usable(path, stat.S_IRUSR, info)
            self._record(os.path.relpath(path, self.root), info, since)
        elif not stat.S_ISLNK(info.st_mode) and not is_whiteout(info):
            self._notes.add_path("a special file was removed", path)
            # protection: special-files-are-removed
            os.unlink(path)
        return False

    def _rename_nested(self, path: str) -> None:
        """Rename a nested repository's git directory: git would ignore the files beside it."""
        folder = os.path.dirname(path)
        if folder == self.root:
            return
        if os.path.relpath(folder, self.root) not in self._submodules:
            what = "files of a nested repository were kept as ordinary files"
            self._notes.add_path(what, path)
        # protection: nested-repositories-become-ordinary-files
        os.rename(path, free_name(os.path.join(folder, NESTED)))

    def _record(self, path: str, info: os.stat_result, since: int) -> None:
        """Record that a file was written by the worker, or is too large to be committed."""
        if info.st_ctime_ns > since:
            self.written.append(path)
        if info.st_size > LARGEST_FILE:
            # protection: large-files-are-left-out
            self.left_out[path] = _TOO_LARGE
            return
        holes = info.st_size - info.st_blocks * 512
        if holes > _HOLES:
            self._holes -= holes
            # protection: sparse-files-count-against-limit
            if self._holes < 0:
                self.left_out[path] = "a sparse file over the disk limit was left out"


def made_at(path: str) -> int:
    """Return when the host created a file, in nanoseconds; -1 if the file does not exist."""
    try:
        return os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return -1


MOST_NAMED = 100
_DEBUG = re.compile(
    rb"([^\0]+)\0  ctime: [^\n]*\n  mtime: [^\n]*\n  dev: \d+\tino: (\d+)\n[^\n]*\n[^\n]*\n"
)


def forget_times(git: HostGit, tree: WorkTree) -> None:
    """Remove, from git's index, size and time of the files that the worker wrote or moved.

    Git finds changed files by size and time, but `cp -p` gives a file the time of another, and
    sizes may be equal.
    """
    suspects = {os.fsencode(path) for path in tree.written} | _list_moved(git, tree)
    if not suspects:
        return
    entries = git.paths("ls-files", "-s", "-z")
    known = (entry for entry in entries if entry.partition(b"\t")[2] in suspects)
    # An entry added in this way has neither size nor time.
    lines = (entry.replace(b" 0\t", b"\t", 1) + b"\0" for entry in known)
    git.text("update-index", "-z", "--index-info", stdin=b"".join(lines))


def _list_moved(git: HostGit, tree: WorkTree) -> set[bytes]:
    """Return the paths in git's index at which a directory's move may have put another file.

    An overlay's upper layer has a moved directory, but not the files in it.
    """
    tops = [path for path in tree.folders if path and "/" not in path]
    if not tops:
        return set()
    chosen = [f":(top,literal){path}" for path in tops] if len(tops) < MOST_NAMED else []
    said = git.run("ls-files", "--debug", "-z", "--", *chosen).stdout
    folders = {os.fsencode(path) for path in tree.folders}
    moved = set()
    for path, inode in _DEBUG.findall(said):
        with suppress(OSError):
            found = os.lstat(os.path.join(os.fsencode(tree.root), path))
            if found.st_ino & 0xFFFFFFFF != int(inode) and _is_below(path, folders):
                moved.add(path)
    return moved


def _is_below(path: bytes, folders: set[bytes]) -> bool:
    while path:
        path = path.rpartition(b"/")[0]
        if path and path in folders:
            return True
    return False
