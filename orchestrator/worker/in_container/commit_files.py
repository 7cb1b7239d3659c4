"""Commit the files in a worker's worktree, and what the worker staged.

Files that git-lfs manages are replaced by pointer files, and their content is copied for the host.
Files that the host would refuse are left out.
"""

import hashlib
import os
import re
import shutil
import stat
from contextlib import suppress
from io import BufferedReader

from orchestrator.worker.in_container.host_git import (
    MOST_NOTES,
    HostGit,
    Notes,
    last_line,
    room,
    worktree_names,
)
from orchestrator.worker.in_container.kept_commits import (
    KeptCommits,
    WorkerIndex,
    commit_index,
    index_lines,
)
from orchestrator.worker.in_container.safe_files import open_regular, write
from orchestrator.worker.in_container.work_tree import WorkTree, forget_times


def find_refused(paths: list[bytes], reserved: list[str]) -> set[bytes]:
    """Return the files that make their directory look like a repository, or have a reserved name.

    Args:
        paths: The files.
        reserved: Names at the top that are reserved for workers' worktrees; `*` at the end of a
            name stands for all names with that prefix.
    """
    names = {os.fsencode(name) for name in reserved}
    prefixes = tuple(name[:-1] for name in names if name.endswith(b"*"))
    disguised = _git_directories(paths)
    return {
        path
        for path in paths
        if path.startswith(prefixes)
        or path.partition(b"/")[0] in names
        or (path.rpartition(b"/")[2].lower() == b"head" and path.rpartition(b"/")[0] in disguised)
    }


def _git_directories(paths: list[bytes]) -> set[bytes]:
    folders: dict[bytes, set[bytes]] = {}
    for path in paths:
        while path:
            folder, _, name = path.rpartition(b"/")
            folders.setdefault(folder, set()).add(name.lower())
            path = folder
    return {
        folder
        for folder, names in folders.items()
        if b"head" in names and not names.isdisjoint((b"objects", b"refs", b"commondir"))
    }


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
        self._given = {
            str(entry[0]): int(entry[1]) for entry in git.read_given("lfs.json").values()
        }
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
            "check-attr", "-z", "--stdin", "filter", stdin=b"".join(path + b"\0" for path in asked)
        ).stdout.split(b"\0")
        for name, value in list(zip(said[::3], said[2::3], strict=False))[:MOST_POINTERS]:
            path = os.fsdecode(name)
            if value == b"lfs" and not self._put_pointer(path):
                # The content is too large to be kept: the committed version is restored.
                self._tree.left_out[path] = "a file of git-lfs over the disk limit was left out"
                was = self._git.run("ls-tree", "-z", "--full-tree", base, "--", path).stdout
                self._set_entry(was or f"0 {'0' * len(base)}\t".encode() + name + b"\0")

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
        # protection: size-of-git-lfs-content-is-checked-before-reading
        if info.st_size > self.room and info.st_size not in self._given.values():
            return None
        file.seek(0)
        oid = hashlib.file_digest(file, "sha256").hexdigest()
        if oid in self._given:
            return oid
        if info.st_size > self.room:
            return None
        # protection: git-lfs-content-counts-against-limit
        self.room -= info.st_size
        os.makedirs(self._folder, exist_ok=True)
        file.seek(0)
        with open(os.path.join(self._folder, oid), "wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        return oid

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


_AS_THEY_ARE = "* -text -ident -working-tree-encoding\n"


class FilesCommitter:
    """Commits the files in a worker's worktree."""

    def __init__(self, git: HostGit, notes: Notes, tree: WorkTree, kept: KeptCommits) -> None:
        self._git = git
        self._notes = notes
        self._tree = tree
        self._kept = kept
        self._lfs = Lfs(git, notes, tree)
        self._copied = git.read_given("copied.json")
        """Untracked files of the user that the host copied into the worktree."""

    def commit(self, base: str, parent: str, message: str) -> str:
        """Commit uncommitted files on top of `parent`, and return the resulting commit.

        Raises:
            RuntimeError: Git cannot check out `parent`.
        """
        # -m keeps the index's data of unchanged files; -i ignores that others differ from the base.
        self._git.text("read-tree", "-i", "-m", parent)
        # protection: written-files-are-read-regardless-of-size-and-time
        forget_times(self._git, self._tree)
        index = WorkerIndex(self._git, self._notes)
        # protection: ignored-files-added-by-force-are-kept
        self._take_staged(index, parent)
        # protection: only-matching-path-is-left-out
        wanted = [".", *(f":(exclude,top,literal){path}" for path in self._tree.left_out)]
        self._add(b"\0".join(os.fsencode(item) for item in wanted))
        # protection: sparse-checkout-deletes-no-files
        self._restore_sparse(index, parent)
        # protection: copied-files-are-not-committed
        self._leave_copies(parent)
        self._lfs.put_pointers(base)
        self._lfs.warn_of_lost_content()
        for path, why in self._tree.left_out.items():
            self._notes.add_path(why, path)
        made = commit_index(self._git, parent, message)
        try:
            self._kept.keep_index(index, parent, made)
        except (RuntimeError, ValueError) as error:
            said = last_line(str(error))
            self._notes.warn(f"content that was only staged could not be kept: {said}")
        return made

    def commit_accepted(self, base: str, onto: str, message: str) -> str:
        """Commit the files on top of a commit, without files that the host would refuse."""
        made = self.commit(base, onto, message)
        tree = self._git.text("rev-parse", f"{made}^{{tree}}")
        paths = self._git.paths("ls-tree", "-r", "-z", "--name-only", tree)
        known = set(self._git.paths("ls-tree", "-r", "-z", "--name-only", onto))
        # protection: incomplete-commits-contain-no-git-directory
        refused = find_refused(paths, worktree_names()) - known
        for path in sorted(refused)[:MOST_NOTES]:
            self._notes.add_path(
                "a file whose directory git would take for a repository was left out",
                os.fsdecode(path),
            )
        if not refused:
            return made
        self._remove_entries(refused)
        return commit_index(self._git, onto, message)

    def note_copies(self, base: str, parent: str) -> None:
        """Add a note for each untracked file, copied from the user, that the worker committed."""
        if not self._copied or parent == base:
            return
        for path in self._git.list_added("diff-tree", "-r", base, parent):
            if path in self._copied:
                self._notes.add_path("a copied file is in the worker's own commits", path)

    def _take_staged(self, index: WorkerIndex, parent: str) -> None:
        """Add to the index the files that the worker staged, even if they are ignored.

        Their content is that of the worktree; files that are missing in the worktree are left out.
        """
        known = set(self._git.paths("ls-files", "-z"))
        left_out = {os.fsencode(path) for path in self._tree.left_out}
        modes, staged = index.modes(), index.differences(parent)
        new = modes.keys() - known - left_out
        if not new:
            return
        # A file that was added with `git add -N` has no content yet.
        empty = self._git.text("hash-object", "-w", "--stdin")
        lines = index_lines({path: staged.get(path, (modes[path], empty)) for path in new})
        form = ("update-index", "--add", "--replace", "-z", "--index-info")
        if self._git.run(*form, stdin=lines).returncode:
            self._notes.warn("ignored files that the worker added by force were left out")

    def _add(self, wanted: bytes, *, again: bool = True) -> None:
        # --ignore-errors: a name that git refuses must not prevent adding the others.
        # protection: invalid-name-keeps-no-other-file-out
        done = self._git.run(
            "add", "--all", *self._sparse, "--ignore-errors", "--pathspec-from-file=-",
            "--pathspec-file-nul", stdin=wanted,
        )  # fmt: skip
        if done.returncode == 0:
            return
        said = last_line(done.stderr[-1000:].decode(errors="replace"))
        if done.returncode == 1:
            self._notes.add(f"some files could not be added: {said}")
        # protection: failing-conversions-keep-no-file-out
        elif again:
            # One file whose attributes prevent its conversion would prevent adding all others.
            attributes = os.path.join(self._git.places.git_dir, "info", "attributes")
            write(attributes, _AS_THEY_ARE)
            self._notes.add(f"git added files without converting them: {said}")
            self._add(wanted, again=False)
        else:
            raise RuntimeError(f"`git add` reported: {said}")

    @property
    def _sparse(self) -> tuple[str, ...]:
        """Return the option with which git adds files outside of a sparse checkout."""
        patterns = os.path.join(self._git.places.git_dir, "info", "sparse-checkout")
        return ("--sparse",) if os.path.exists(patterns) else ()

    def _restore_sparse(self, index: WorkerIndex, parent: str) -> None:
        """Retain files that are missing only because of the worker's sparse checkout."""
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=D")
        gone = set(self._git.paths("diff-index", *form, parent))
        sparse = gone & index.not_checked_out() if gone else set()
        if sparse:
            entries = self._git.paths("ls-tree", "-r", "-z", parent)
            lines = (e + b"\0" for e in entries if e.partition(b"\t")[2] in sparse)
            self._git.text("update-index", "--add", "-z", "--index-info", stdin=b"".join(lines))

    def _leave_copies(self, parent: str) -> None:
        """Remove the user's copied files from the index, unless `parent` contains them."""
        if self._copied:
            added = self._git.list_added("diff-index", "--cached", parent)
            self._remove_entries({os.fsencode(path) for path in added if path in self._copied})

    def _remove_entries(self, paths: set[bytes]) -> None:
        lines = b"".join(path + b"\0" for path in paths)
        self._git.text("update-index", "--force-remove", "-z", "--stdin", stdin=lines)
