"""Make git read every file that a worker wrote or moved, even if size and time are unchanged."""

import os
import re
from contextlib import suppress

from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.work_tree import WorkTree

MOST_NAMED = 100
_DEBUG = re.compile(
    rb"([^\0]+)\0  ctime: [^\n]*\n  mtime: [^\n]*\n  dev: \d+\tino: (\d+)\n[^\n]*\n[^\n]*\n"
)


def forget_times(git: HostGit, tree: WorkTree) -> None:
    """Remove, from git's index, size and time of the files that the worker wrote or moved.

    Git finds changed files by size and time, but `cp -p` gives a file the time of another, and
    sizes may be equal.
    """
    suspects = {os.fsencode(path) for path in tree.written} | _moved(git, tree)
    if not suspects:
        return
    entries = git.paths("ls-files", "-s", "-z")
    known = (entry for entry in entries if entry.partition(b"\t")[2] in suspects)
    # An entry added in this way has neither size nor time.
    lines = (entry.replace(b" 0\t", b"\t", 1) + b"\0" for entry in known)
    git.text("update-index", "-z", "--index-info", stdin=b"".join(lines))


def _moved(git: HostGit, tree: WorkTree) -> set[bytes]:
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
    """Return whether a file is below one of the given directories."""
    while path:
        path = path.rpartition(b"/")[0]
        if path and path in folders:
            return True
    return False
