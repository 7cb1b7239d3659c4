"""Read a copy of the worker's own git index: staged files, conflicts, files not checked out."""

import os
import re

from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.new_commits import GITLINK, Entries
from orchestrator.worker.in_container.notes import Notes
from orchestrator.worker.in_container.safe_files import copy_regular

LARGEST_BLOB = 100 << 20
"""Maximum size in bytes of a staged file that is kept; other files have the same limit."""
LARGEST_INDEX = 256 << 20
"""Maximum size in bytes of a git index that is read."""
_SHARED_INDEX = re.compile(r"sharedindex\.[0-9a-f]{40}(?:[0-9a-f]{24})?")


class WorkerIndex:
    """A copy of the worker's own git index."""

    def __init__(self, git: HostGit, notes: Notes) -> None:
        """Copy the index out of the worker's git directory; add a warning if it cannot be read."""
        self._git = git
        self._store = git.places.store
        copy = os.path.join(git.places.git_dir, "worker-index")
        self._env = {"GIT_INDEX_FILE": copy}
        source = os.path.join(self._store, "index")
        self._readable = copy_regular(source, copy, largest=LARGEST_INDEX)
        if self._readable:
            self._copy_shared()
            self._readable = git.run("ls-files", "-u", "-z", env=self._env).returncode == 0
        self.too_large: list[bytes] = []
        """Paths of staged files that are too large to be kept, found by the last call of `_sound`.
        """
        if not self._readable and os.path.lexists(source):
            notes.warn("the worker's git index is unreadable: content that was only staged is lost")

    def _copy_shared(self) -> None:
        """Copy the additional files of a split index."""
        found = [name for name in os.listdir(self._store) if _SHARED_INDEX.fullmatch(name)]
        for name in found[:10]:
            target = os.path.join(self._git.places.git_dir, name)
            copy_regular(os.path.join(self._store, name), target, largest=LARGEST_INDEX)

    def _lines(self, *arguments: str) -> list[bytes]:
        if not self._readable:
            return []
        done = self._git.run(*arguments, env=self._env)
        return done.stdout.split(b"\0")[:-1] if done.returncode == 0 else []

    def staged(self, commit: str) -> Entries:
        """Return the staged files that differ from a commit."""
        form = ("-z", "--cached", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=AMT")
        lines = self._lines("diff-index", *form, "--ignore-submodules=none", commit)
        found = {}
        for head, path in zip(lines[::2], lines[1::2], strict=False):
            _, mode, _, blob, _ = head.decode().split(" ")
            if mode != GITLINK:
                found[path] = (mode, blob)
        return self._sound(found)

    def modes(self) -> dict[bytes, str]:
        """Return the mode of each file in the worker's index."""
        found = {}
        for line in self._lines("ls-files", "-s", "-z"):
            head, _, path = line.partition(b"\t")
            mode = head.partition(b" ")[0].decode()
            if mode != GITLINK:
                found[path] = mode
        return found

    def unmerged(self) -> Entries:
        """Return the versions of conflicting files, in directories named by stage number."""
        found = {}
        for line in self._lines("ls-files", "-u", "-z"):
            head, _, path = line.partition(b"\t")
            mode, blob, stage = head.decode().split(" ")
            if mode != GITLINK:
                found[stage.encode() + b"/" + path] = (mode, blob)
        return self._sound(found)

    def not_checked_out(self) -> set[bytes]:
        """Return the paths that are missing only because of a sparse checkout."""
        return {line[2:] for line in self._lines("ls-files", "-t", "-z") if line[:2] == b"S "}

    def _sound(self, found: Entries) -> Entries:
        """Return the entries whose content exists, is not empty, and is not too large."""
        asked = "".join(f"{blob}\n" for _, blob in found.values()).encode()
        form = "--batch-check=%(objecttype) %(objectsize)"
        answers = self._git.run("cat-file", form, "--buffer", stdin=asked).stdout.splitlines()
        answered = list(zip(found.items(), answers, strict=False))
        sizes = {path: int(a[5:]) for (path, _), a in answered if a.startswith(b"blob ")}
        self.too_large = [path for path, size in sizes.items() if size > LARGEST_BLOB]
        return {path: found[path] for path, size in sizes.items() if 0 < size <= LARGEST_BLOB}
