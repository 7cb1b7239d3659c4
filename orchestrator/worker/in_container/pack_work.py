"""Runs INSIDE a helper container after the worker's is dead: packs the files that the worker wrote.

The container's Python receives it as text, together with `git_states`, so it imports only the
standard library. It runs as the worker's own user, without network, on files that may be hostile;
the host checks all its output again. The worker's git configuration is never read: git uses a
directory that the host created.

Writes to the output directory: `pack` (a thin pack base..tip), `tip` (an object id), `notes` (JSON:
what was left out, and why), and, if the worker left commits that the tip does not reach, `kept` and
`kept.pack` (see `git_states`).
"""

import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from orchestrator.worker.in_container.git_states import Index, Others, carry_over

LARGEST_FILE = 100 * 1024 * 1024
NESTED = ".git-of-a-nested-repository"
MOST_NOTES = 20
LONGEST_NOTE = 200
"""Characters of a note, each up to 12 bytes as JSON: the host reads 64 KiB of notes."""
MOST_POINTERS = 10_000
LARGEST_LIST = 256 << 20
"""Bytes read of the list of packed refs, in all searches together."""
ROOM = "ORCHESTRATOR_HARVEST_ROOM"
"""Variable with the bytes that the harvest may write in addition to the worker's files."""
RESERVED = "ORCHESTRATOR_HARVEST_RESERVED"
"""Variable with the names that are reserved for workers' worktrees, separated by `/`."""
_HOLES = 1024 * 1024
"""Bytes of a file that are not on the disk; a file with fewer does not count as sparse."""
MOST_NAMED = 100
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DEBUG = re.compile(
    rb"([^\0]+)\0  ctime: [^\n]*\n  mtime: [^\n]*\n  dev: \d+\tino: (\d+)\n[^\n]*\n[^\n]*\n"
)
_AS_THEY_ARE = "* -text -ident -working-tree-encoding\n"
_CONTENT = re.compile(r"[0-9a-f]{64}")
_OBJECT_FOLDER = re.compile(r"[0-9a-f]{2}|pack")
_OBJECT_FILE = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?|pack-[0-9a-f]+\.(?:pack|idx)")


class Places(NamedTuple):
    """The directories of this container."""

    workspace: str
    store: str
    git_dir: str
    objects: str
    out: str


class Harvest:
    """One worker's work tree and store, as mounted in this container."""

    def __init__(self, places: Places, base: str = "") -> None:
        self.workspace = places.workspace
        self.store = places.store
        self.out = places.out
        self.notes: list[str] = []
        self.left_out: list[str] = []
        self.why: dict[str, str] = {}
        """Why a file is left out, if not for its size."""
        self.room = int(os.environ.get(ROOM, 1 << 32))
        """Bytes of LFS content that may still be handed over."""
        self.holes = self.room
        """Bytes that sparse files may still have beyond their size on the disk."""
        self.objects = places.objects
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": "/nonexistent",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_DIR": places.git_dir,
            "GIT_WORK_TREE": places.workspace,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{places.objects}:{places.store}/objects",
        }
        self.unread = LARGEST_LIST
        """Bytes of the list of packed refs that may still be read."""
        self.submodules = self._given("submodules.json")
        self.written: list[str] = []
        """Regular files that the worker may have written."""
        self.folders: list[str] = []
        """Directories that the worker may have moved."""
        self.since = -1
        """Time of the last change that was not the worker's, in nanoseconds."""
        self.others = Others(self, base)
        self.put_together: str | None = None
        """The last of the worker's commits, if these are replaced by a single commit."""

    def git(self, *arguments: str, stdin: bytes = b"", check: bool = True) -> str:
        """Run git on the directory that the host created."""
        done = self.start(*arguments, stdin=stdin)
        if check and done.returncode:
            raise RuntimeError(f"git {arguments[0]}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="replace").strip() if not done.returncode else ""

    def start(
        self, *arguments: str, stdin: bytes = b"", **variables: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run git with additional variables and return the completed process."""
        return subprocess.run(
            ["git", "-c", "safe.directory=*", "-c", "index.skipHash=true", *arguments],
            input=stdin,
            capture_output=True,
            env={**self.env, **variables},
            cwd=variables.get("GIT_WORK_TREE", self.workspace),
            check=False,
        )

    def warn(self, text: str) -> None:
        """Report work that could not be kept; such messages come before all notes."""
        self.notes.insert(0, text)

    def note(self, what: str, path: str) -> None:
        """Record that something was left out or changed."""
        path = os.path.relpath(os.path.join(self.workspace, path), self.workspace)
        self.notes.append(f"{what}: {path}")

    def tidy(self, written: str) -> None:
        """Make the tree readable for git: remove special files, and restore permissions.

        Args:
            written: The same tree with only the worker's files, which is the overlay's upper layer,
                or all of the tree.
        """
        if written == self.workspace:
            self.since = made_at(os.path.join(self.env["GIT_DIR"], "made"))
        pending = [""]
        while pending:
            inside = pending.pop()
            self.folders.append(inside)
            directory = os.path.join(self.workspace, inside)
            try:
                make_usable(directory, stat.S_IRWXU)
                with os.scandir(os.path.join(written, inside)) as entries:
                    found = [e.name for e in list(entries) if self._tidy_entry(directory, e)]
                pending += [os.path.join(inside, name) for name in found]
            except OSError as error:
                # The path is longer than the system allows: git cannot read it either.
                self.note(f"directory left out ({error.strerror})", directory[:200])

    def _tidy_entry(self, directory: str, entry: "os.DirEntry[str]") -> bool:
        """Tidy one entry; return whether it is a directory to descend into."""
        path = os.path.join(directory, entry.name)
        if entry.name == ".git":
            if os.path.relpath(directory, self.workspace) in self.submodules:
                os.rename(path, free_name(os.path.join(directory, NESTED)))
            elif os.path.dirname(path) != self.workspace:
                self.note("nested repository, its files were kept as ordinary files", path)
                os.rename(path, free_name(os.path.join(os.path.dirname(path), NESTED)))
            return False
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return not entry.name.startswith(NESTED)
        if stat.S_ISREG(info.st_mode):
            make_usable(path, stat.S_IRUSR, info)
            if info.st_ctime_ns > self.since:
                self.written.append(path[len(self.workspace) + 1 :])
            self._judge_size(os.path.relpath(path, self.workspace), info)
        elif not stat.S_ISLNK(info.st_mode) and not is_whiteout(info):
            self.note("special file removed", path)
            os.unlink(path)
        return False

    def _judge_size(self, path: str, info: os.stat_result) -> None:
        """Leave out files that are too large, or sparse files that exceed the allowed size."""
        if info.st_size > LARGEST_FILE:
            self.left_out.append(path)
            return
        holes = info.st_size - info.st_blocks * 512
        if holes > _HOLES:
            self.holes -= holes
            if self.holes < 0:
                self.left_out.append(path)
                self.why[path] = "sparse file over the disk limit left out"

    def tidy_store(self) -> None:
        """Keep only objects and packs in the store; move all other files aside.

        A commit graph may be wrong, an alternates file may point anywhere, reading a FIFO may
        block.
        """
        make_usable(self.store, stat.S_IRWXU)
        aside = os.path.join(self.store, f"aside-{unheard_of()}")
        os.mkdir(aside)
        self._tidy_objects(os.path.join(self.store, "objects"), aside)

    def _tidy_objects(self, objects: str, aside: str) -> None:
        if os.path.lexists(objects) and not is_directory(objects):
            os.rename(objects, os.path.join(aside, "objects"))
        os.makedirs(objects, exist_ok=True)
        make_usable(objects, stat.S_IRWXU)
        for name in os.listdir(objects):
            folder = os.path.join(objects, name)
            if _OBJECT_FOLDER.fullmatch(name) and is_directory(folder):
                self._tidy_folder(folder, aside)
            else:
                put_aside(folder, aside)

    def _tidy_folder(self, folder: str, aside: str) -> None:
        make_usable(folder, stat.S_IRWXU)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if stat.S_ISREG(info.st_mode) and _OBJECT_FILE.fullmatch(name):
                make_usable(path, stat.S_IRUSR, info)
            else:
                put_aside(path, aside)

    def parents(self, base: str, branch: str) -> "tuple[str, str]":
        """Return the worker's last commit for its branch, and the commit that its files belong to.

        They differ if HEAD left the branch, as after `git checkout --detach HEAD~1` or during a
        bisect.
        """
        head, own = self.resolve("HEAD"), self.resolve(f"refs/heads/{branch}")
        on_base = [name for name in (head, own) if name and self._descends(name, base)]
        if not on_base:
            self.notes.append(
                "the worker's history is not on top of its base; its branch has only its files"
            )
            return base, base
        tip = on_base[0]
        if own in on_base and head and self._is_ancestor(head, str(own)):
            tip = str(own)
        if self._moves_submodules(base, tip):
            self.put_together = tip
            return base, base
        return tip, head if head and self._is_whole(head, base) else tip

    def _is_ancestor(self, one: str, other: str) -> bool:
        return self.start("merge-base", "--is-ancestor", one, other).returncode == 0

    def _descends(self, commit: str, base: str) -> bool:
        if not self._is_whole(commit, base):
            return False
        return self.git("merge-base", base, commit, check=False) == base

    def _is_whole(self, commit: str, base: str) -> bool:
        """Return whether an object is a commit and all objects that it needs exist."""
        if self.git("cat-file", "-t", commit, check=False) != "commit":
            return False
        needed = ("rev-list", "--objects", "--quiet", commit, f"^{base}")
        return self.start(*needed).returncode == 0

    def _moves_submodules(self, base: str, commit: str) -> bool:
        """Return whether a commit refers to a submodule commit that only the worker has."""
        if not self.submodules or commit == base:
            return False
        form = ("--raw", "-m", "-z", "--no-abbrev", "--no-renames", "--format=")
        raw = self.start("log", *form, f"{base}..{commit}").stdout
        listed = self.start("ls-tree", "-r", "-z", base).stdout
        known = set(re.findall(rb"160000 commit ([0-9a-f]+)\t", listed))
        if set(re.findall(rb":[0-7]{6} 160000 [0-9a-f]+ ([0-9a-f]+) ", raw)) <= known:
            return False
        self.notes.append(
            "one of the worker's commits moved a submodule; its commits were replaced "
            "by a single commit, with every submodule as it was"
        )
        return True

    def resolve(self, name: str, depth: int = 5) -> str | None:
        """Read a ref of the worker's store without letting git read its configuration."""
        text = self.read(os.path.join(self.store, name)) or self._packed(name)
        if text.startswith("ref: refs/") and ".." not in text and depth:
            return self.resolve(text.removeprefix("ref: "), depth - 1)
        return text if _OBJECT_ID.fullmatch(text) else None

    def _packed(self, name: str) -> str:
        wanted = f" {name}\n".encode()
        for line in self._lines(os.path.join(self.store, "packed-refs")):
            if line.endswith(wanted):
                return line.partition(b" ")[0].decode(errors="replace")
        return ""

    def _lines(self, path: str) -> "Iterator[bytes]":
        """Yield lines of a regular file; each line and all searches together are limited."""
        with self._opened(path) as file:
            while self.unread > 0 and (line := file.readline(1 << 16)):
                self.unread -= len(line)
                yield line

    def read(self, path: str, limit: int = 1024) -> str:
        """Return the start of a regular file, following no link."""
        with self._opened(path) as file:
            return file.read(limit).decode(errors="replace").strip()

    def _opened(self, path: str) -> "BinaryIO":
        """Open a regular file, following no link; return an empty file for anything else."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return io.BytesIO()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return io.BytesIO()
        return open(descriptor, "rb")

    def commit(self, base: str, parent: str, message: str) -> str:
        """Commit uncommitted files on top of `parent`, and return the resulting commit."""
        # -m keeps the index's data of unchanged files; -i ignores that others differ from the base.
        self.git("read-tree", "-i", "-m", parent)
        self._forget_times()
        index = Index(self)
        self._take_staged(index, parent)
        wanted = [".", *(f":(exclude,top,literal){path}" for path in self.left_out)]
        # --ignore-errors: a name that git refuses must not prevent adding the others.
        self._add(b"\0".join(os.fsencode(item) for item in wanted))
        self._restore_sparse(index, parent)
        self._leave_copies(parent)
        self._put_pointers(base)
        self._tell_content()
        for path in self.left_out:
            self.note(self.why.get(path, f"file over {LARGEST_FILE >> 20} MiB left out"), path)
        made = self._commit_tree(self.git("write-tree"), parent, message)
        try:
            self.others.keep_index(index, parent, made)
        except (RuntimeError, ValueError) as error:
            self.warn(f"content that was only staged could not be kept: {last_line(str(error))}")
        return made

    def bring_all(self, base: str, branch: str, message: str) -> str:
        """Return the tip of the worker's branch; write what it does not reach to `kept`."""
        tip, at = self.parents(base, branch)
        self.note_copies(base, tip)
        try:
            made = self.commit(base, at, message)
        except RuntimeError as error:
            # Git cannot check out this commit; the files are kept without it.
            self.warn(f"the worker's last commit cannot be built upon: {last_line(str(error))}")
            at = base
            made = self.commit(base, base, message)
        reached = tip
        if at == tip:
            tip = made
        elif made != at:
            carried = carry_over(self, self.others, (at, made, tip), message)
            if carried is None:
                self.others.keep_commit("uncommitted", made, at)
            tip = carried or tip
        try:
            self.others.keep_commits(reached, without=self.put_together)
        except (OSError, RuntimeError, ValueError) as error:
            self.warn(f"not all of the worker's git store could be read: {last_line(str(error))}")
        self.others.write()
        return tip

    def bring_files(self, base: str, onto: str, message: str) -> str:
        """Commit the files on top of a commit, leaving out those that the host would refuse."""
        made = self.commit(base, onto, message)
        tree = self.git("rev-parse", f"{made}^{{tree}}")
        paths = self.start("ls-tree", "-r", "-z", "--name-only", tree).stdout.split(b"\0")[:-1]
        known = set(self.start("ls-tree", "-r", "-z", "--name-only", onto).stdout.split(b"\0"))
        reserved = os.environ.get(RESERVED, ".architect-parallel-*").split("/")
        refused = refused_paths(paths, reserved) - known
        for path in sorted(refused)[:MOST_NOTES]:
            self.note(
                "left out because git would take its directory for a git directory",
                os.fsdecode(path),
            )
        if not refused:
            return made
        lines = b"".join(path + b"\0" for path in refused)
        self.git("update-index", "--force-remove", "-z", "--stdin", stdin=lines)
        return self._commit_tree(self.git("write-tree"), onto, message)

    def _commit_tree(self, tree: str, parent: str, message: str) -> str:
        if tree == self.git("rev-parse", f"{parent}^{{tree}}"):
            return parent
        return self.git("commit-tree", tree, "-p", parent, stdin=message.encode())

    def _forget_times(self) -> None:
        """Make git read every file that the worker wrote or moved, whatever its size and time.

        `cp -p` gives a file the time of another file, which may have the same size.
        """
        suspects = {os.fsencode(path) for path in self.written} | self._moved()
        if not suspects:
            return
        entries = self.start("ls-files", "-s", "-z").stdout.split(b"\0")
        known = (entry for entry in entries if entry.partition(b"\t")[2] in suspects)
        # An entry added in this way has neither size nor time.
        lines = (entry.replace(b" 0\t", b"\t", 1) + b"\0" for entry in known)
        self.git("update-index", "-z", "--index-info", stdin=b"".join(lines))

    def _moved(self) -> "set[bytes]":
        """Return the files in the worker's directories that are other files than git's index knows.

        An overlay's upper layer has a moved directory, but not the files in it.
        """
        tops = [path for path in self.folders if path and "/" not in path]
        if not tops:
            return set()
        chosen = [f":(top,literal){path}" for path in tops] if len(tops) < MOST_NAMED else []
        said = self.start("ls-files", "--debug", "-z", "--", *chosen).stdout
        folders = {os.fsencode(path) for path in self.folders}
        moved = set()
        for path, inode in _DEBUG.findall(said):
            with suppress(OSError):
                found = os.lstat(os.path.join(os.fsencode(self.workspace), path))
                if found.st_ino & 0xFFFFFFFF != int(inode) and below(path, folders):
                    moved.add(path)
        return moved

    def _take_staged(self, index: Index, parent: str) -> None:
        """Add to the index the files that the worker's own index has, even if they are ignored.

        The content then comes from the worktree, and missing files are dropped.
        """
        known = set(self.start("ls-files", "-z").stdout.split(b"\0"))
        left_out = {os.fsencode(path) for path in self.left_out}
        modes, staged = index.modes(), index.staged(parent)
        new = modes.keys() - known - left_out
        if not new:
            return
        # A file that was added with `git add -N` has no content yet.
        empty = self.git("hash-object", "-w", "--stdin")
        entries = {path: staged.get(path, (modes[path], empty)) for path in new}
        lines = (f"{one[0]} {one[1]}\t".encode() + path + b"\0" for path, one in entries.items())
        form = ("update-index", "--add", "--replace", "-z", "--index-info")
        if self.start(*form, stdin=b"".join(lines)).returncode:
            self.warn("ignored files that the worker added by force were left out")

    def _restore_sparse(self, index: Index, parent: str) -> None:
        """Keep files that are missing only because the worker made its checkout sparse."""
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=D")
        gone = set(self.start("diff-index", *form, parent).stdout.split(b"\0")[:-1])
        sparse = gone & index.not_checked_out() if gone else set()
        if sparse:
            entries = self.start("ls-tree", "-r", "-z", parent).stdout.split(b"\0")
            lines = (e + b"\0" for e in entries if e.partition(b"\t")[2] in sparse)
            self.git("update-index", "--add", "-z", "--index-info", stdin=b"".join(lines))

    @property
    def _sparse(self) -> "tuple[str, ...]":
        """The option that makes git add files outside the sparse checkout."""
        patterns = os.path.join(self.env["GIT_DIR"], "info", "sparse-checkout")
        return ("--sparse",) if os.path.exists(patterns) else ()

    def _leave_copies(self, parent: str) -> None:
        """Remove copied files from the index, unless a commit contains them."""
        copied = self._given("copied.json")
        if not copied:
            return
        added = self._names("diff-index", "--cached", parent)
        ours = b"".join(os.fsencode(path) + b"\0" for path in added if path in copied)
        self.git("update-index", "--force-remove", "-z", "--stdin", stdin=ours)

    def note_copies(self, base: str, parent: str) -> None:
        """Add a note for each copied file that the worker itself committed."""
        copied = self._given("copied.json")
        added = self._names("diff-tree", "-r", base, parent) if copied and parent != base else ()
        for path in added:
            if path in copied:
                self.note("a copied file is in the worker's own commits", path)

    def _given(self, name: str) -> "dict[str, list[int | str]]":
        """Read a JSON file that the host left in the git directory; empty if there is none."""
        try:
            with open(os.path.join(self.env["GIT_DIR"], name), encoding="ascii") as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def _names(self, *command: str) -> "list[str]":
        """Return the paths of added files."""
        form = ("-z", "--name-only", "--no-renames", "--diff-filter=A")
        done = self.start(command[0], *form, *command[1:], stdin=b"")
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            raise RuntimeError(f"git {command[0]}: {last_line(said)}")
        return [os.fsdecode(path) for path in done.stdout.split(b"\0") if path]

    def _put_pointers(self, base: str) -> None:
        """Replace changed LFS files by pointers, and hand over the content of new pointers."""
        if not os.path.exists(os.path.join(self.env["GIT_DIR"], "lfs.json")):
            return
        given = {str(one[0]): int(one[1]) for one in self._given("lfs.json").values()}
        form = ("-z", "--cached", "--name-only", "--no-renames", "--diff-filter=AMT")
        changed = self.start("diff-index", *form, base).stdout.split(b"\0")[:-1]
        asked = [*changed, *map(os.fsencode, self.left_out)]
        said = self.start(
            "check-attr", "-z", "--stdin", "filter", stdin=b"".join(one + b"\0" for one in asked)
        ).stdout.split(b"\0")
        for path, value in list(zip(said[::3], said[2::3], strict=False))[:MOST_POINTERS]:
            if value == b"lfs" and not self._put_pointer(os.fsdecode(path), given):
                self._leave_content(os.fsdecode(path), base)

    def _tell_content(self) -> None:
        """Report LFS content that is only in the worker's git store and is not kept."""
        kept = {str(one[0]) for one in self._given("lfs.json").values()}
        with suppress(OSError):
            kept |= set(os.listdir(os.path.join(self.out, "lfs")))
        left = 0
        for _, _, names in os.walk(os.path.join(self.store, "lfs", "objects")):
            left += sum(bool(_CONTENT.fullmatch(name)) and name not in kept for name in names)
            if left > MOST_POINTERS:
                break
        if left:
            self.warn(
                "content of git-lfs that is only in the worker's git store is not kept: "
                f"{left} objects"
            )

    def _leave_content(self, path: str, base: str) -> None:
        """Restore the committed version of an LFS file whose content is too large."""
        self.why[path] = "file of git-lfs over the disk limit left out"
        if path not in self.left_out:
            self.left_out.append(path)
        was = self.start("ls-tree", "-z", "--full-tree", base, "--", path).stdout
        gone = f"0 {'0' * len(base)}\t".encode() + os.fsencode(path) + b"\0"
        self.git("update-index", "--add", "-z", "--index-info", stdin=was or gone)

    def _put_pointer(self, path: str, given: "dict[str, int]") -> bool:
        """Replace a file by a pointer; return False if its content is too large to keep."""
        try:
            descriptor = os.open(
                os.path.join(self.workspace, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except OSError:
            return True
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or file.read(len(POINTER)) == POINTER:
                return True
            # A sparse file takes no space, but its copy would: its size decides before it is read.
            if info.st_size > self.room and info.st_size not in given.values():
                return False
            file.seek(0)
            oid = hashlib.file_digest(file, "sha256").hexdigest()
            if oid not in given:
                if info.st_size > self.room:
                    return False
                self.room -= info.st_size
                folder = os.path.join(self.out, "lfs")
                os.makedirs(folder, exist_ok=True)
                file.seek(0)
                with open(os.path.join(folder, oid), "wb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
        text = POINTER + b"oid sha256:%s\nsize %d\n" % (oid.encode(), info.st_size)
        blob = self.git("hash-object", "-w", "--stdin", stdin=text)
        mode = "100755" if info.st_mode & stat.S_IXUSR else "100644"
        line = f"{mode} {blob}\t".encode() + os.fsencode(path) + b"\0"
        self.git("update-index", "--add", "-z", "--index-info", stdin=line)
        if path in self.left_out:
            self.left_out.remove(path)
        return True

    def keep_submodules(self) -> None:
        """Write patches of the changes in submodules, since a branch must not move submodules."""
        for path, (number, commit) in self.submodules.items():
            tree = os.path.join(self.workspace, path)
            self._tell_commits(path, f"{self.store}/modules/{int(number)}/objects")
            if os.path.realpath(tree) == tree and os.path.isdir(tree):
                self._keep_submodule(path, tree, int(number), str(commit))

    def _tell_commits(self, path: str, objects: str) -> None:
        """Report commits, even stashed ones, in a worker's git directory of a submodule."""
        if os.path.realpath(objects) != objects or not os.path.isdir(objects):
            return
        aside = os.path.join(self.store, f"aside-{unheard_of()}")
        os.mkdir(aside)
        self._tidy_objects(objects, aside)
        if self.others.has_commits(objects):
            self.warn(
                f"the worker's own commits in a submodule are not kept, only its files: {path}"
            )

    def _keep_submodule(self, path: str, tree: str, number: int, commit: str) -> None:
        places = {
            "GIT_DIR": os.path.join(self.env["GIT_DIR"], "submodules", str(number)),
            "GIT_WORK_TREE": tree,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{self.objects}/submodules/{number}",
        }
        large = (os.path.relpath(one, path) for one in self.left_out if one.startswith(f"{path}/"))
        wanted = [".", *(f":(exclude,top,literal){one}" for one in large)]
        self.start(
            "add", "--all", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul",
            stdin=b"\0".join(os.fsencode(one) for one in wanted), **places,
        )  # fmt: skip
        form = ("--cached", "--binary", "--full-index", "--no-renames")
        made = os.path.join(self.out, f"submodule-{number}.patch")
        with open(made, "wb") as file:
            subprocess.run(
                ["git", "-c", "safe.directory=*", "diff-index", "-p", *form, commit],
                stdout=file,
                env={**self.env, **places},
                cwd=tree,
                check=True,
            )
        if not os.path.getsize(made):
            os.unlink(made)

    def _add(self, wanted: bytes, *, again: bool = True) -> None:
        done = self.start(
            "add", "--all", *self._sparse, "--ignore-errors", "--pathspec-from-file=-",
            "--pathspec-file-nul", stdin=wanted,
        )  # fmt: skip
        if done.returncode == 0:
            return
        said = last_line(done.stderr[-1000:].decode(errors="replace"))
        if done.returncode == 1:
            self.notes.append(f"some files could not be added: {said}")
        elif again:
            # One file whose attributes prevent its conversion would prevent adding all others.
            write(os.path.join(self.env["GIT_DIR"], "info", "attributes"), _AS_THEY_ARE)
            self.notes.append(f"files were added without conversion: {said}")
            self._add(wanted, again=False)
        else:
            raise RuntimeError(f"git add: {said}")

    def finish(self, tip: str) -> None:
        """Write the remaining output for the host; the file `tip` is written last."""
        self.others.pack(tip, "pack")
        write(os.path.join(self.out, "notes"), json.dumps(few_notes(self.notes)))
        write(os.path.join(self.out, "tip"), tip)


def make_usable(path: str, bits: int, info: os.stat_result | None = None) -> None:
    """Add permissions on a file or directory if they are missing."""
    mode = stat.S_IMODE((info or os.lstat(path)).st_mode)
    if mode & bits != bits:
        os.chmod(path, mode | bits)


def is_whiteout(info: os.stat_result) -> bool:
    """Return whether an entry of an upper layer marks a deleted file."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_directory(path: str) -> bool:
    """Return whether the path is a directory itself, not a link to a directory."""
    return stat.S_ISDIR(os.lstat(path).st_mode)


def put_aside(path: str, directory: str) -> None:
    """Move a file or directory into another directory, under a random name."""
    if is_directory(path):
        make_usable(path, stat.S_IRWXU)
    os.rename(path, os.path.join(directory, unheard_of()))


def unheard_of() -> str:
    """Return a random name; importing `tempfile` would take longer than the rest of the harvest."""
    return os.urandom(16).hex()


def free_name(path: str) -> str:
    """Return `path`, or `path` with a number, that does not exist."""
    number = 1
    while os.path.lexists(candidate := path if number == 1 else f"{path}-{number}"):
        number += 1
    return candidate


def last_line(text: str) -> str:
    """Return the last line of git's output."""
    return text.strip().rpartition("\n")[2]


def write(path: str, text: str) -> None:
    """Write a small file."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def made_at(path: str) -> int:
    """Return the time of a file that the host created, or -1 if there is none."""
    try:
        return os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return -1


def refused_paths(paths: "list[bytes]", reserved: "list[str]") -> "set[bytes]":
    """Return files that would make a directory a git directory, or have a reserved name.

    Args:
        paths: The files.
        reserved: Names at the top that are reserved for workers' worktrees; `*` at the end of a
            name stands for all names with that prefix.
    """
    names = {os.fsencode(name) for name in reserved}
    prefixes = tuple(name[:-1] for name in names if name.endswith(b"*"))
    folders: dict[bytes, set[bytes]] = {}
    for path in paths:
        while path:
            folder, _, name = path.rpartition(b"/")
            folders.setdefault(folder, set()).add(name.lower())
            path = folder
    disguised = {
        folder
        for folder, names in folders.items()
        if b"head" in names and not names.isdisjoint((b"objects", b"refs", b"commondir"))
    }
    return {
        path
        for path in paths
        if path.startswith(prefixes)
        or path.partition(b"/")[0] in names
        or (path.rpartition(b"/")[2].lower() == b"head" and path.rpartition(b"/")[0] in disguised)
    }


def few_notes(notes: "list[str]") -> "list[str]":
    """Shorten a list of notes so that each kind occurs, with its number."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        text = note if len(note) <= LONGEST_NOTE else f"{note[:120]}...{note[-70:]}"
        kinds.setdefault(note.partition(": ")[0], []).append(text)
    most = len(notes) if len(notes) <= MOST_NOTES else max(1, MOST_NOTES // len(kinds) - 1)
    few: list[str] = []
    for kind, found in kinds.items():
        few += found[:most]
        few += [f"{kind[:LONGEST_NOTE]}: {len(found) - most} more"] if len(found) > most else []
    rest = [f"{len(few) - MOST_NOTES + 1} more notes"] if len(few) > MOST_NOTES else []
    return [*few[: MOST_NOTES - len(rest)], *rest]


def below(path: bytes, folders: "set[bytes]") -> bool:
    """Return whether a file lies below one of some directories."""
    while path:
        path = path.rpartition(b"/")[0]
        if path and path in folders:
            return True
    return False


def main(*arguments: str) -> None:
    """Tidy, commit, pack.

    With a commit as the last argument, only the files are committed, on top of that commit.
    """
    written, base, branch, message, *onto = arguments[len(Places._fields) :]
    harvest = Harvest(Places(*arguments[: len(Places._fields)]), base)
    harvest.tidy(written)
    harvest.tidy_store()
    harvest.keep_submodules()
    if onto:
        harvest.finish(harvest.bring_files(base, onto[0], message))
    else:
        harvest.finish(harvest.bring_all(base, branch, message))


if __name__ == "__main__":
    main(*sys.argv[1:])
