"""Replace files that git-lfs manages by pointer files, and copy their content for the host."""

import hashlib
import os
import re
import shutil
import stat
from contextlib import suppress
from io import BufferedReader

from orchestrator.worker.in_container.host_git import HostGit
from orchestrator.worker.in_container.notes import Notes
from orchestrator.worker.in_container.safe_files import open_regular
from orchestrator.worker.in_container.variables import room
from orchestrator.worker.in_container.work_tree import WorkTree

MOST_POINTERS = 10_000
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_CONTENT = re.compile(r"[0-9a-f]{64}")


class Lfs:
    """The files in the worker's worktree that git-lfs manages."""

    def __init__(self, git: HostGit, notes: Notes, tree: WorkTree) -> None:
        self._git = git
        self._notes = notes
        self._tree = tree
        self._folder = os.path.join(git.places.out, "lfs")
        self._given = {str(one[0]): int(one[1]) for one in git.given("lfs.json").values()}
        """Size of the content that the worker was given, by its hash."""
        self.room = room()
        """Number of bytes of content that may still be copied for the host."""

    def put_pointers(self, base: str) -> None:
        """Put LFS pointers for changed files into the index, and copy new content for the host."""
        if not os.path.exists(os.path.join(self._git.places.git_dir, "lfs.json")):
            return
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=AMT")
        changed = self._git.paths("diff-index", *form, base)
        asked = [*changed, *map(os.fsencode, self._tree.left_out)]
        said = self._git.run(
            "check-attr", "-z", "--stdin", "filter", stdin=b"".join(one + b"\0" for one in asked)
        ).stdout.split(b"\0")
        for path, value in list(zip(said[::3], said[2::3], strict=False))[:MOST_POINTERS]:
            if value == b"lfs" and not self._put_pointer(os.fsdecode(path)):
                self._leave_content(os.fsdecode(path), base)

    def _put_pointer(self, path: str) -> bool:
        """Replace a file by an LFS pointer; return False if its content is too large to be kept."""
        file = open_regular(os.path.join(self._tree.root, path))
        if file is None:
            return True
        with file:
            if file.read(len(POINTER)) == POINTER:
                return True
            info = os.fstat(file.fileno())
            oid = self._hand_over(file, info)
        if oid is None:
            return False
        text = POINTER + b"oid sha256:%s\nsize %d\n" % (oid.encode(), info.st_size)
        blob = self._git.text("hash-object", "-w", "--stdin", stdin=text)
        mode = "100755" if info.st_mode & stat.S_IXUSR else "100644"
        self._set_entry(f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0")
        self._tree.left_out.pop(path, None)
        return True

    def _hand_over(self, file: BufferedReader, info: os.stat_result) -> str | None:
        """Copy a file's content for the host; return its hash, or None if the file is too large."""
        # A sparse file takes no space, but its copy would: its size decides before it is read.
        if info.st_size > self.room and info.st_size not in self._given.values():
            return None
        file.seek(0)
        oid = hashlib.file_digest(file, "sha256").hexdigest()
        if oid in self._given:
            return oid
        if info.st_size > self.room:
            return None
        self.room -= info.st_size
        os.makedirs(self._folder, exist_ok=True)
        file.seek(0)
        with open(os.path.join(self._folder, oid), "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        return oid

    def _leave_content(self, path: str, base: str) -> None:
        """Restore the committed version of a file whose content is too large to be kept."""
        self._tree.left_out[path] = "a file of git-lfs over the disk limit was left out"
        was = self._git.run("ls-tree", "-z", "--full-tree", base, "--", path).stdout
        self._set_entry(was or f"0 {'0' * len(base)}\t".encode() + os.fsencode(path) + b"\0")

    def _set_entry(self, line: bytes) -> None:
        self._git.text("update-index", "--add", "-z", "--index-info", stdin=line)

    def warn_of_lost_content(self) -> None:
        """Warn of LFS content that exists only in the worker's git directory and is not kept."""
        kept = set(self._given)
        with suppress(OSError):
            kept |= set(os.listdir(self._folder))
        left = 0
        for _, _, names in os.walk(os.path.join(self._git.places.store, "lfs", "objects")):
            left += sum(bool(_CONTENT.fullmatch(name)) and name not in kept for name in names)
            if left > MOST_POINTERS:
                break
        if left:
            self._notes.warn(
                "content of git-lfs that is only in the worker's git directory is not kept: "
                f"{left} objects"
            )
